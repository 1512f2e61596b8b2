/** A process that is sent SIGHUP, as operators do after an edit of local.ini. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { temporaryFolder } from '../helpers/server.ts'
import { freePort, start, untilUp } from './child.ts'

/** The server as `settee serve` runs it, but for threads from the sources. */
const SCRIPT = `
  import { runUntilSignalled } from './src/cli/serve-command.ts'
  import { startServer } from './src/server.ts'
  const [dataDir, port] = process.argv.slice(1)
  await runUntilSignalled(() => startServer({
    dataDir, env: {}, flags: { port: Number(port) },
    threadEntry: new URL('test/helpers/database-thread.mjs', 'file://' + process.cwd() + '/'),
    sandboxEntry: new URL('test/helpers/sandbox-thread.mjs', 'file://' + process.cwd() + '/'),
  }))`

t.test('SIGHUP reads local.ini anew; an error in it changes nothing', async (t) => {
  const dataDir = await temporaryFolder(t)
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const child = start(t, process.execPath, ['--input-type=module', '--eval', SCRIPT, dataDir, String(port)])
  await untilUp(child, url)
  let output = ''
  child.process.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const logged = async (text: RegExp): Promise<void> => {
    while (!text.test(output)) await new Promise((resolve) => child.process.stdout?.once('data', resolve))
  }
  const value = async () => (await fetch(`${url}/_config/a/b`)).text()

  writeFileSync(join(dataDir, 'local.ini'), '[a]\nb = one\n')
  child.process.kill('SIGHUP')
  await logged(/"changed":\["a\/b"\].*reloaded the configuration/)
  t.equal(await value(), '"one"\n')

  writeFileSync(join(dataDir, 'local.ini'), '[a]\nb = two\nc\n')
  child.process.kill('SIGHUP')
  await logged(/Line 3 of .*local\.ini is not a section.*has an error; nothing changed/)
  t.equal(await value(), '"one"\n')

  child.process.kill('SIGTERM')
  t.match(await child.ended, { code: 0, stderr: '' })
})
