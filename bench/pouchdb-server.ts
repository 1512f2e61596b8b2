/** pouchdb-server as a peer. The first use installs it into bench/.peers, because settee itself does not need it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Peer } from './peer.ts'
import { startServer } from './server-process.ts'

const VERSION = '4.2.0'
const FOLDER = fileURLToPath(new URL('.peers', import.meta.url))
const MAIN = join(FOLDER, 'node_modules/pouchdb-server/bin/pouchdb-server')

/** @throws when it cannot be installed, or ends before it is ready */
export async function startPouchdbServer(env: Readonly<Record<string, string>> = {}): Promise<Peer> {
  if (!existsSync(MAIN)) await install()
  const port = await freePort()
  return startServer({
    name: 'pouchdb-server',
    durability: 'none: LevelDB without sync',
    args: (folder) => [MAIN, '--port', `${port}`, '--dir', folder, '--no-stdout-logs', '--no-color'],
    // Its dependencies leave rejections unhandled, which ends newer versions of Node.
    env: { ...env, NODE_OPTIONS: '--unhandled-rejections=warn --no-deprecation' },
    address: (printed) => /has started on (http:\S+)/.exec(printed)?.[1],
  })
}

/**
 * Runs the script of LevelDB alone, which compiles only where there is no prebuilt one: that of SQLite, which is not used
 * here, compiles for a minute.
 */
async function install(): Promise<void> {
  await mkdir(FOLDER, { recursive: true })
  await writeFile(join(FOLDER, 'package.json'), '{"private":true}')
  const quiet = ['--no-audit', '--no-fund', '--loglevel=error']
  await npm('install', ...quiet, '--ignore-scripts', `pouchdb-server@${VERSION}`)
  await npm('rebuild', ...quiet, 'leveldown')
}

/** Not synchronously: what else runs in this process must go on. */
async function npm(...args: readonly string[]): Promise<void> {
  const [status] = (await once(spawn('npm', args, { cwd: FOLDER, stdio: 'inherit' }), 'close')) as [
    number | null,
  ]
  if (status !== 0) throw new Error('pouchdb-server cannot be installed')
}

/** pouchdb-server has no option for "any free port". */
async function freePort(): Promise<number> {
  const probe = createServer()
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve))
  const { port } = probe.address() as { port: number }
  await new Promise((resolve) => probe.close(resolve))
  return port
}
