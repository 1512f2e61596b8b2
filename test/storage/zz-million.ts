import t from 'tap'
import { postgresEngine } from '../../src/storage/postgres/postgres-engine.ts'
import { readStoreAddress } from '../../src/storage/store-address.ts'
import { startPostgres } from '../helpers/postgres-server.ts'

t.setTimeout(600_000)
const N = Number(process.env.N ?? 1_000_000)
const server = await startPostgres(t, { settings: { autovacuum: 'off' } })
const url = await server.createDatabase()
const db = new URL(url).pathname.slice(1)
const engine = postgresEngine({ address: await readStoreAddress(url, null), poolSize: 4 })
t.teardown(() => engine.close())
const catalog = await engine.openCatalog()
const time = async (name: string, work: () => Promise<unknown>, times = 200) => {
  await work()
  const took: number[] = []
  for (let n = 0; n < times; n++) {
    const since = performance.now()
    await work()
    took.push(performance.now() - since)
  }
  took.sort((a, b) => a - b)
  console.log(name, 'p50', took[times >> 1]!.toFixed(2), 'p99', took[Math.floor(times * 0.99)]!.toFixed(2), 'ms')
}
let since = performance.now()
for (let n = 0; n < 500; n++) await catalog.create(`first${n}`)
console.log('create', ((performance.now() - since) / 500).toFixed(2), 'ms each, one at a time')
since = performance.now()
await Promise.all(Array.from({ length: 2000 }, (_, n) => catalog.create(`second${n}`)))
console.log('create', (2000 / ((performance.now() - since) / 1000)).toFixed(0), '/s at once')
since = performance.now()
await server.query(`
SET search_path = settee;
INSERT INTO entry (name, db, incarnation) SELECT 'db' || n, 10000 + n, 10000 + n FROM generate_series(1, ${N}) n;
INSERT INTO database (db, incarnation, created_at, partitioned, timeline, epochs)
  SELECT 10000 + n, 10000 + n, 0, false, timeline(), '[{"id":"abcdefghijkl","firstSeq":0}]' FROM generate_series(1, ${N}) n;
INSERT INTO catalog_update (name, type, seq) SELECT 'db' || n, 'created', 10000 + n FROM generate_series(1, ${N}) n;
UPDATE store SET last_db = 10000 + ${N}, databases = databases + ${N}, update_seq = 10000 + ${N};
`, [], db)
console.log('filled in', Math.round(performance.now() - since), 'ms')
const any = () => `db${1 + Math.floor(Math.random() * N)}`
await time('find', () => catalog.find(any()))
await time('find none', () => catalog.find(`x${Math.random()}`))
await time('count', () => catalog.count())
await time('names 100', () => catalog.names({ after: any() }, 100))
await time('names 100 down prefix', () => catalog.names({ prefix: 'db5', after: any(), descending: true }, 100))
await time('updates 100', () => catalog.readUpdates({ since: Math.floor(Math.random() * N) }, 100))
await time('updates of 20', () => catalog.readUpdates({ since: 0, names: Array.from({ length: 20 }, any) }, 100))
await time('create', () => catalog.create(`n${Math.random()}`.replace('.', '')))
await time('note 100', () => catalog.noteUpdated(Array.from({ length: 100 }, any), []), 50)
await time('note 1000 with marks', () => {
  const names = Array.from({ length: 1000 }, any)
  return catalog.noteUpdated(names, names.map((name) => ({ name, epoch: 'abcdefghijkl', updateSeq: 5 })))
}, 20)
await time('writeRecords 3', () => catalog.writeRecords([1, 2, 3].map((n) => ({ kind: 'k', key: any() + n, value: 'x'.repeat(100) }))))
await time('open and close', async () => (await engine.openDatabase(any())).close())
await time('delete', async () => { const name = any(); await catalog.delete(name).catch(() => undefined) }, 50)
const stores = []
since = performance.now()
for (let n = 1; n <= 10_000; n++) stores.push(await engine.openDatabase(`db${n}`).catch(() => undefined))
console.log('opened 10000 in', Math.round(performance.now() - since), 'ms')
const cpu = async () => (await server.query("SELECT coalesce(sum(calls),0) FROM (SELECT 0 calls) x"))
await cpu()
const before = process.cpuUsage()
const pidCpu = async () => {
  const rows = await server.query(`SELECT pid FROM pg_stat_activity WHERE datname = '${db}'`)
  const { readFile } = await import('node:fs/promises')
  let ticks = 0
  for (const { pid } of rows) { const f = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]!.split(' '); ticks += Number(f[11]) + Number(f[12]) }
  return ticks * 10
}
const pg0 = await pidCpu()
await new Promise((r) => setTimeout(r, 10_000))
const used = process.cpuUsage(before)
console.log('poll of 10000 for 10 s: node', ((used.user + used.system) / 1e4).toFixed(1), 'ms/s; postgres', ((await pidCpu()) - pg0) / 10, 'ms/s')
