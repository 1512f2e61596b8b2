import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { request, Agent } from 'undici'
import { startServer } from './src/server.ts'
const dataDir = await mkdtemp(join(tmpdir(), 'settee-bench-'))
const server = await startServer({ dataDir, env: {}, flags: { port: 0, bind: '127.0.0.1', logLevel: 'none' }, threadEntry: new URL('./test/helpers/database-thread.mjs', import.meta.url) })
const dispatcher = new Agent({ connections: 8 })
const ask = async (method: string, path: string, body?: unknown) => { const a = await request(server.url + path, { method: method as any, dispatcher, headers: { 'content-type': 'application/json' }, body: body === undefined ? null : JSON.stringify(body) }); return a.body.json() as any }
await ask('PUT', 'db')
const N = 20000
const revs: string[] = []
for (let round = 0; round < 6; round++) for (let at = 0; at < N; at += 500) {
  const docs = Array.from({ length: 500 }, (_, n) => ({ _id: `doc${at + n}`, ...(round > 0 && { _rev: revs[at + n] }), text: `${round}`.padEnd(1000, String.fromCharCode(97 + (n % 26))) }))
  const rows = await ask('POST', 'db/_bulk_docs', { docs }); for (let n = 0; n < 500; n++) revs[at + n] = rows[n].rev
}
const pct = (all: number[], p: number) => { all.sort((a, b) => a - b); return all[Math.min(all.length - 1, Math.floor(all.length * p))]!.toFixed(1) }
let serial = 0
async function saves(until: () => Promise<boolean> | boolean, workers: number) {
  const ms: number[] = []; let stop = false
  await Promise.all([...Array.from({ length: workers }, async () => { while (!stop) { const a = performance.now(); await ask('PUT', `db/save${serial++}`, { text: 'x'.repeat(1000) }); ms.push(performance.now() - a) } }), (async () => { while (!(await until())) await new Promise((r) => setTimeout(r, 20)); stop = true })()])
  return `${ms.length} saves, p50 ${pct(ms, .5)} p95 ${pct(ms, .95)} p99 ${pct(ms, .99)} max ${pct(ms, 1)}`
}
const seconds = (s: number) => { const end = performance.now() + s * 1000; return () => performance.now() > end }
for (const workers of [1, 8]) console.log('before, workers', workers, await saves(seconds(4), workers))
const before = await ask('GET', 'db')
console.log('sizes before', before.sizes, before.update_seq)
const mode = process.argv[2]
const t0 = performance.now()
await ask('POST', 'db/_compact', {})
const isDone = async () => !(await ask('GET', 'db')).compact_running
if (mode === 'idle') { while (!(await isDone())) await new Promise((r) => setTimeout(r, 20)) }
else console.log('during, workers', mode, await saves(isDone, Number(mode)))
console.log('took', ((performance.now() - t0) / 1000).toFixed(2), 's')
console.log('sizes after', (await ask('GET', 'db')).sizes)
await dispatcher.destroy(); await server.close(); await rm(dataDir, { recursive: true })
