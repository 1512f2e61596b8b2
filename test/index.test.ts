import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { ROOT, start } from './cli/child.ts'
import { certificateFiles } from './helpers/certificates.ts'
import { temporaryFolder } from './helpers/server.ts'

const FACE = pathToFileURL(join(ROOT, 'dist', 'index.js')).href

t.test('a program that is given on the command line embeds a server', async (t) => {
  const program = `
    import { createServer } from ${JSON.stringify(FACE)}
    const server = await createServer({ dataDir: process.env.FOLDER, port: 0, logLevel: 'none' })
    console.log((await fetch(server.url + 'notes', { method: 'PUT' })).status)
    await server.close()
  `
  const env = { FOLDER: await temporaryFolder(t) }
  const child = start(t, process.execPath, ['--input-type=module', '--eval', program], { env })
  t.match(await child.ended, { code: 0, stdout: '201\n', stderr: '' })
})

t.test('and one that speaks TLS', async (t) => {
  const { certFile, keyFile } = await certificateFiles(t)
  const program = `
    import { createServer } from ${JSON.stringify(FACE)}
    const { FOLDER, CERT, KEY } = process.env
    const tls = { cert: CERT, key: KEY, port: 0 }
    const server = await createServer({ dataDir: FOLDER, port: 0, logLevel: 'none', tls })
    console.log(server.secureUrl.split(':', 1)[0], (await fetch(server.secureUrl + '_up')).status)
    await server.close()
  `
  const env = {
    FOLDER: await temporaryFolder(t),
    CERT: certFile,
    KEY: keyFile,
    NODE_EXTRA_CA_CERTS: certFile,
  }
  const child = start(t, process.execPath, ['--input-type=module', '--eval', program], { env })
  t.match(await child.ended, { code: 0, stdout: 'https 200\n', stderr: '' })
})
