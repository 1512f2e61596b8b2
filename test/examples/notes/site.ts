/** The app as it is built and served: static files on a port of their own. */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { extname, join } from 'node:path'
import type { Test } from 'tap'
import { ROOT, start } from '../../cli/child.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
}

/**
 * Builds the app into a folder that goes with the test.
 * @param hostedServer `scheme://host:port` for the mode that it begins with; empty: none
 */
export async function buildSite(t: Test, hostedServer: string): Promise<string> {
  const folder = await temporaryFolder(t)
  const vite = join(ROOT, 'node_modules/vite/bin/vite.js')
  const args = [vite, 'build', 'examples/notes', '--outDir', folder, '--emptyOutDir', '--logLevel', 'warn']
  const child = start(t, process.execPath, args, { env: { VITE_HOSTED_SERVER: hostedServer } })
  const { code, stdout, stderr } = await child.ended
  if (code !== 0) throw new Error(`The app cannot be built: ${stdout}${stderr}`)
  return folder
}

export interface Site {
  /** As a browser names it, without a slash at the end. */
  readonly origin: string
  serve(folder: string): void
}

/** Listens at once, so that servers can be told whom to let in, and serves what is built later. */
export async function openSite(t: Test): Promise<Site> {
  let root = ''
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '/', 'http://site').pathname
    const file = path === '/' ? '/index.html' : path
    readFile(join(root, file)).then(
      (content) => {
        response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream')
        response.end(content)
      },
      () => response.writeHead(404).end(),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return {
    origin: `http://127.0.0.1:${port}`,
    serve: (folder) => {
      root = folder
    },
  }
}
