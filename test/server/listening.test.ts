/** What a server says when it listens: people and scripts wait for the line. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'

t.test('the line with the address is logged', async (t) => {
  const logFile = join(await temporaryFolder(t), 'log')
  const { url } = await startTestServer(t, { logLevel: 'info', logFile })
  const lines = (await readFile(logFile, 'utf8')).trim().split('\n')
  const ready = lines.map((line) => JSON.parse(line)).filter(({ msg }) => / is ready at /.test(msg))
  t.match(ready, [{ level: 'info', msg: new RegExp(`^settee \\S+ is ready at ${url}/$`) }])
  t.equal(ready.length, 1)
})
