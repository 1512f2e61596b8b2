import { readFile } from 'node:fs/promises'
import t from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import { Connections, type ConnectionsOptions } from '../../../src/storage/postgres/connections.ts'
import { LostAnswer } from '../../../src/storage/postgres/store-fault.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { cuttableNetwork } from '../../helpers/cuttable-network.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'
import { errorMessage } from './cuttable-database.ts'

const server = await startPostgres(t)
const network = await cuttableNetwork(t, server.port)

/** The name of an error of the table, or the name of another error's class. */
function nameOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'none',
    (error: unknown) => {
      if (error instanceof CouchError) return error.code
      return error instanceof LostAnswer ? 'LostAnswer' : String(error)
    },
  )
}

function query(text: string, values: readonly unknown[] = []) {
  return { name: text, text, values }
}

/** @returns connections to a new database, whose table `saved` is empty */
async function connect(
  t: { teardown(end: () => Promise<void>): void },
  options: Partial<ConnectionsOptions> = {},
) {
  const url = new URL(await server.createDatabase())
  url.port = String(network.port)
  const address = await readStoreAddress(url.href, null)
  const connections = new Connections({ address, size: 4, ...options })
  t.teardown(() => connections.close())
  await connections.write(query('CREATE SCHEMA settee'))
  await connections.write(query('CREATE TABLE saved (n bigint)'))
  const saved = async () => {
    const rows = await connections.read(query('SELECT n FROM saved ORDER BY n'))
    return rows.map(([n]) => n)
  }
  const name = url.pathname.slice(1)
  const count = async () => {
    const [row] = await server.query('SELECT count(*)::int AS n FROM settee.saved', [], name)
    return row?.n
  }
  return { connections, saved, count, name }
}

t.test('values keep their types', async (t) => {
  const { connections } = await connect(t)
  const values = [2 ** 52, Buffer.from([0, 1, 255]), ['a"', 'b\\', 'ü'], '{"n":1e400}', null]
  const text = 'SELECT $1::bigint, $2::bytea, $3::text[], $4::json, $5::text'
  t.same(await connections.read({ name: 'types', text, values }), [values])
})

t.test('an error in a statement leaves the connection usable', async (t) => {
  const { connections } = await connect(t, { size: 1 })
  const failing = query('SELECT 1 / 0')
  t.equal(await nameOf(connections.read(failing)), 'internal_server_error')
  t.equal(await nameOf(connections.write(failing)), 'internal_server_error')
  t.same(await connections.read(query('SELECT 1')), [[1]])
})

t.test('a transaction is stored completely or not at all', async (t) => {
  const { connections, saved } = await connect(t)
  await connections.transaction(async (run) => {
    await run(query('INSERT INTO saved VALUES ($1)', [1]))
    await run(query('INSERT INTO saved VALUES ($1)', [2]))
  })
  const refused = connections.transaction(async (run) => {
    await run(query('INSERT INTO saved VALUES ($1)', [3]))
    throw new CouchError('conflict')
  })
  t.equal(await nameOf(refused), 'conflict')
  const hidden = connections.transaction(async (run) => {
    await run(query('INSERT INTO saved VALUES ($1)', [4]))
    await run(query('SELECT 1 / 0')).catch(() => undefined)
  })
  t.equal(await nameOf(hidden), 'internal_server_error', 'a commit that PostgreSQL rolled back is an error')
  t.same(await saved(), [1, 2])
})

t.test('an answer that is lost is told from a write that was refused', async (t) => {
  const { connections, saved } = await connect(t)
  await saved()
  network.withholdAnswers()
  const write = connections.write(query('INSERT INTO saved VALUES (1)'))
  const name = nameOf(write)
  await server.query('SELECT pg_sleep(0.2)')
  network.mend()
  t.equal(await name, 'LostAnswer')
  t.same(await saved(), [1], 'it is stored')
})

for (const [severity, code] of [
  ['PANIC', '58030'],
  ['FATAL', '57P01'],
  ['FATAL', 'XX000'],
  ['PANIC', '53100'],
  ['ВАЖНО', '40001'],
] as const) {
  t.test(
    `a write that is answered by ${severity} ${code} and the end of the connection may be stored`,
    async (t) => {
      const { connections, saved, count } = await connect(t, {
        onOperation: (operation) => {
          if (operation === 'commit') network.withholdAnswers()
        },
      })
      const end = async (name: Promise<string>, rows: number) => {
        await until(async () => (await count()) === rows)
        network.endWith(errorMessage(severity, code))
        t.equal(await name, 'LostAnswer')
      }
      await saved()
      network.withholdAnswers()
      await end(nameOf(connections.write(query('INSERT INTO saved VALUES (1)'))), 1)
      await end(nameOf(connections.transaction((run) => run(query('INSERT INTO saved VALUES (2)')))), 2)
      t.same(await saved(), [1, 2])
    },
  )
}

t.test('a server that ends connections of writes and reads', async (t) => {
  const { connections, saved } = await connect(t)
  const end = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND usename = 'settee'`
  const ended = () => until(async () => (await server.query(end)).length > 0)
  const write = nameOf(connections.write(query('INSERT INTO saved SELECT 1 FROM pg_sleep(60)')))
  await ended()
  t.equal(await write, 'LostAnswer')
  const read = connections.read(query('SELECT 1 FROM pg_sleep(1)'))
  await ended()
  t.same(await read, [[1]], 'a read is sent again')
  t.same(await saved(), [])
})

t.test('a transaction that breaks before its commit is not stored', async (t) => {
  const { connections, saved } = await connect(t)
  const broken = connections.transaction(async (run) => {
    await run(query('INSERT INTO saved VALUES (1)'))
    network.reset()
    await run(query('INSERT INTO saved VALUES (2)'))
  })
  t.equal(await nameOf(broken), 'store_unavailable')
  t.same(await saved(), [])
})

t.test('a read whose connection breaks is sent once more', async (t) => {
  const { connections, saved } = await connect(t)
  const sleeping = connections.read(query('SELECT pg_sleep(0.1)'))
  network.reset()
  await sleeping
  t.same(await saved(), [])
})

t.test('while the server is stopped, everything is refused; afterwards it works again', async (t) => {
  const { connections, saved } = await connect(t)
  await server.stop('immediate')
  t.equal(await nameOf(connections.read(query('SELECT 1'))), 'store_unavailable')
  const write = () => nameOf(connections.write(query('INSERT INTO saved VALUES (1)')))
  // A write that was sent before its connection is known to have ended has no answer, and is told apart.
  await until(async () => (await write()) !== 'LostAnswer')
  t.equal(await write(), 'store_unavailable')
  await server.start()
  await until(async () => (await nameOf(saved())) === 'none')
  await connections.write(query('INSERT INTO saved VALUES (2)'))
  t.same(await saved(), [2])
})

t.test('after one silent connection, idle ones are not used for writes any more', async (t) => {
  const { connections, saved } = await connect(t)
  const add = (n: number) => connections.write(query('INSERT INTO saved VALUES ($1)', [n]))
  await Promise.all([add(1), add(2)])
  await saved()
  network.forget()
  // It is sent again on a new connection, 12 s later.
  t.same(await saved(), [1, 2])
  await Promise.all([add(3), add(4)])
  t.same(await saved(), [1, 2, 3, 4])
})

t.test('the kernel asks whether the server of a silent connection is there', async (t) => {
  const { connections } = await connect(t)
  await connections.write(query('SELECT 1'))
  const line = (text: string) => text.trim().split(/\s+/)
  const port = `:${network.port.toString(16).toUpperCase().padStart(4, '0')}`
  const table = await readFile('/proc/net/tcp', 'utf8')
  const timers = table
    .split('\n')
    .map(line)
    .filter(([, , remote, state]) => remote?.endsWith(port) && state === '01')
    .map(([, , , , , timer]) => timer as string)
  t.ok(timers.length > 0)
  for (const timer of timers) {
    // Documentation/networking/proc_net_tcp.rst of Linux: 02 is the timer of keep-alives, in hundredths of a second.
    t.match(timer, /^02:/)
    t.ok(Number.parseInt(timer.slice(3), 16) <= 1100, timer)
  }
})

t.test('transactions are read committed, whatever the default of the role or the database is', async (t) => {
  const { connections, name } = await connect(t)
  await server.query(`ALTER DATABASE ${name} SET default_transaction_isolation = 'serializable'`)
  await server.query(
    `ALTER ROLE settee IN DATABASE ${name} SET default_transaction_isolation = 'repeatable read'`,
  )
  await server.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`)
  const level = query('SHOW transaction_isolation')
  await until(async () => (await nameOf(connections.write(level))) === 'none')
  t.same(await connections.write(level), [['read committed']])
  t.same(await connections.read(level), [['read committed']])
  t.same(await connections.transaction((run) => run(level)), [['read committed']])
  const own = await connections.dedicated()
  t.same((await own.query('SHOW transaction_isolation')).rows, [{ transaction_isolation: 'read committed' }])
  await own.end()
})

t.test('writes wait for a connection, and share a few', async (t) => {
  const { connections, saved } = await connect(t, { size: 4 })
  await Promise.all(
    Array.from({ length: 50 }, (_, n) => connections.write(query('INSERT INTO saved VALUES ($1)', [n]))),
  )
  t.equal((await saved()).length, 50)
  const sql =
    "SELECT count(*)::int AS n FROM pg_stat_activity WHERE usename = 'settee' AND datname <> 'postgres'"
  const [row] = await server.query(sql)
  t.ok(Number(row?.n) <= 4 * 9, `${row?.n} connections`)
})

t.test('after close, everything is refused', async (t) => {
  const { connections } = await connect(t)
  await connections.close()
  t.equal(await nameOf(connections.read(query('SELECT 1'))), 'unavailable')
  t.equal(await nameOf(connections.write(query('SELECT 1'))), 'unavailable')
  await connections.close()
})
