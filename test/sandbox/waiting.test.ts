/** Calls that must end while they wait or run. */
import { once } from 'node:events'
import { MessageChannel } from 'node:worker_threads'
import t from 'tap'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import { SandboxClient } from '../../src/sandbox/sandbox-client.ts'
import { SlotTable } from '../../src/sandbox/slot-table.ts'
import { put, serve } from '../threads/served.ts'
import { filterOf, mapOf } from './functions.ts'
import { LIMITS, serveSandbox } from './served.ts'

const PASS = 'function (doc) { return doc.v }'
const HANG = 'function () { for (;;); }'

const inDatabase = (database: number, text: string) => ({ ...filterOf(text), database })

t.test('work that has waited too long fails', async (t) => {
  const { join } = serveSandbox(t, { limits: { ...LIMITS, timeoutMs: 300 } })
  const { sandbox } = join(5000)
  t.same(await sandbox.filter(filterOf(PASS), ['{"v":1}'], '{}'), [true])
  const codes = Promise.all(
    Array.from({ length: 60 }, () =>
      sandbox.filter(inDatabase(1, HANG), ['{}'], '{}').catch(({ code }: { code: string }) => code),
    ),
  )
  t.same(await sandbox.filter(inDatabase(2, PASS), ['{"v":1}'], '{}'), [true])
  const ended = await codes
  t.same(new Set(ended), new Set(['function_timeout', 'unavailable']))
  t.same(await sandbox.filter(inDatabase(1, PASS), ['{"v":1}'], '{}'), [true], 'later calls are served')
})

t.test('the work of a deleted database fails at once', async (t) => {
  const { client, sandbox } = serveSandbox(t, { limits: { ...LIMITS, timeoutMs: 10_000 } })
  t.same(await sandbox.filter(inDatabase(2, PASS), ['{"v":1}'], '{}'), [true])
  const calls = Array.from({ length: 5 }, () =>
    t.rejects(sandbox.filter(inDatabase(1, HANG), ['{}'], '{}'), { code: 'no_database' }),
  )
  const startedAt = performance.now()
  client.forget(1)
  await Promise.all(calls)
  t.ok(performance.now() - startedAt < 8000, 'no call waits for the function to end')
  t.same(await sandbox.filter(inDatabase(2, PASS), ['{"v":1}'], '{}'), [true])
  client.forget(1)
  // The thread is free again when the function is stopped.
  const later = [1, 2, 3].map((database) => sandbox.filter(inDatabase(database, PASS), ['{"v":1}'], '{}'))
  t.same(await Promise.all(later), [[true], [true], [true]])
})

t.test('a function with results that are far too large is stopped', async (t) => {
  const { sandbox } = serveSandbox(t)
  const docs = Array.from({ length: 100 }, () => '{}')
  const many = mapOf(`function () { emit('x'.repeat(10000000)) }`)
  await t.rejects(sandbox.map(many, docs), { code: 'function_memory' })
  t.equal((await sandbox.map(many, docs.slice(0, 3))).length, 3)
})

t.test('a database can be deleted while its validate function runs', async (t) => {
  const limits = { ...DEFAULT_LIMITS, functionTimeout: 60_000 }
  const { databases } = await serve(t, { settings: { limits, rules: DEFAULT_RULES } })
  const make = async (validate: string) => {
    await databases.create('notes')
    const notes = await databases.get('notes')
    await put(notes, '_design/guard', { validate_doc_update: validate })
    return notes
  }
  const notes = await make('function (doc) { if (doc.loop) for (;;); }')
  await put(notes, 'a')
  const loop = (id: string) => t.rejects(put(notes, id, { loop: true }), { code: 'no_database' })
  const saves = [loop('x')]
  // Validated next to the first one, which is running by then.
  await put(notes, 'b')
  saves.push(loop('y'), loop('z'))
  const startedAt = performance.now()
  await databases.delete('notes')
  await Promise.all(saves)
  const again = await make(`function (doc) { if (doc.no) throw { forbidden: 'no' } }`)
  await put(again, 'b')
  await t.rejects(put(again, 'c', { no: true }), { code: 'forbidden' })
  t.ok(performance.now() - startedAt < 10_000, 'no call waits for the functions to end')
})

t.test('a thread that arrives after the client is closed is released', async (t) => {
  const client = new SandboxClient({ slotTable: new SlotTable().memory, client: 1 }, () => undefined)
  const refused = t.rejects(client.sandbox.filter(filterOf(PASS), ['{}'], '{}'), { code: 'unavailable' })
  client.close()
  await refused
  const { port1, port2 } = new MessageChannel()
  port1.ref()
  client.notice({ type: 'thread', slot: { index: 0, thread: 1 }, port: port2 })
  await once(port1, 'close')
  await t.rejects(client.sandbox.filter(filterOf(PASS), ['{}'], '{}'), { code: 'unavailable' })
})
