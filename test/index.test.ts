import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { ROOT, start } from './cli/child.ts'
import { temporaryFolder } from './helpers/server.ts'

t.test('a program that is given on the command line embeds a server', async (t) => {
  const face = pathToFileURL(join(ROOT, 'dist', 'index.js')).href
  const program = `
    import { createServer } from ${JSON.stringify(face)}
    const server = await createServer({ dataDir: process.env.FOLDER, port: 0, logLevel: 'none' })
    console.log((await fetch(server.url + 'notes', { method: 'PUT' })).status)
    await server.close()
  `
  const env = { FOLDER: await temporaryFolder(t) }
  const child = start(t, process.execPath, ['--input-type=module', '--eval', program], { env })
  t.match(await child.ended, { code: 0, stdout: '201\n', stderr: '' })
})
