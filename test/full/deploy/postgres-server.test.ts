/** The PostgreSQL of the tests: it leaves nothing, whatever ends a test, and its standbys lose what they did not receive. */
import { existsSync } from 'node:fs'
import { dirname } from 'node:path'
import t from 'tap'
import { endOf, start } from '../../cli/child.ts'
import { startPostgres, startStandby } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'

t.test('it starts again after any end, and freezes', async (t) => {
  const server = await startPostgres(t, {
    password: 'a b',
    icuLocale: 'en-US',
    settings: { work_mem: '5MB' },
  })
  const address = await server.createDatabase()
  t.match(address, /^postgres:\/\/settee:a%20b@127\.0\.0\.1:\d+\/test_1$/)
  t.same(await server.query("SELECT 'a' < 'B' AS less, current_setting('work_mem') AS memory"), [
    { less: true, memory: '5MB' },
  ])
  await server.query('CREATE TABLE kept (a int)', [], 'test_1')
  await server.restart('immediate')
  await server.restart('fast')
  t.same(await server.query('SELECT * FROM kept', [], 'test_1'), [])
  await server.freeze()
  let isAnswered = false
  const late = server.query('SELECT 1 AS one').then((rows) => {
    isAnswered = true
    return rows
  })
  // A connection takes 4 ms.
  await new Promise((resolve) => setTimeout(resolve, 200))
  t.notOk(isAnswered)
  await server.thaw()
  t.same(await late, [{ one: 1 }])
})

t.test('a standby that was cut off lost what was committed since', async (t) => {
  const primary = await startPostgres(t)
  await primary.query('CREATE TABLE numbers (a int)')
  const standby = await startStandby(t, primary)
  await primary.query('INSERT INTO numbers VALUES (1)')
  await standby.caughtUp()
  await standby.disconnect()
  await primary.query('INSERT INTO numbers VALUES (2)')
  await standby.promote()
  t.same(await standby.query('SELECT * FROM numbers'), [{ a: 1 }])
  await standby.query('INSERT INTO numbers VALUES (3)')
  t.same(await primary.query('SELECT * FROM numbers'), [{ a: 1 }, { a: 2 }])
})

t.test('a killed test leaves neither a process nor a file', async (t) => {
  const script = `
    import { startPostgres } from ${JSON.stringify(import.meta.resolve('../../helpers/postgres-server.ts'))}
    const server = await startPostgres({ teardown() {} })
    await server.freeze()
    console.log(server.dataDir)
    setInterval(() => {}, 1000)
  `
  const child = start(t, process.execPath, ['--input-type=module-typescript', '--eval', script])
  const line = await new Promise<string>((resolve) => child.process.stdout?.once('data', resolve))
  const folder = dirname(String(line).trim())
  t.ok(existsSync(folder))
  child.process.kill('SIGKILL')
  t.match(await endOf(child), { code: 'SIGKILL' })
  await until(() => !existsSync(folder))
})
