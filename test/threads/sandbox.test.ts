/** Database threads and the sandbox threads that run functions of design documents. */
import t, { type Test } from 'tap'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import type { DatabaseHandle, ServerDatabasesOptions } from '../../src/threads/databases.ts'
import { put, serve } from './served.ts'

const FORBID = `function (newDoc) { if (newDoc.no) throw { forbidden: 'not ' + newDoc._id } }`

async function guarded(
  t: Test,
  validate: string,
  options: Partial<ServerDatabasesOptions> = {},
): Promise<{ notes: DatabaseHandle } & Awaited<ReturnType<typeof serve>>> {
  const served = await serve(t, options)
  await served.databases.create('notes')
  const notes = await served.databases.get('notes')
  await put(notes, '_design/guard', { validate_doc_update: validate })
  return { ...served, notes }
}

t.test('a function on a sandbox thread validates a write', async (t) => {
  const { notes } = await guarded(t, FORBID)
  await put(notes, 'a', { no: false })
  await t.rejects(put(notes, 'b', { no: true }), { code: 'forbidden', reason: 'not b' })
})

t.test('every database thread reaches the sandbox threads', async (t) => {
  const { databases } = await guarded(t, FORBID)
  for (const name of ['b', 'c', 'd', 'e']) {
    await databases.create(name)
    await put(await databases.get(name), '_design/guard', { validate_doc_update: FORBID })
  }
  for (const name of ['b', 'c', 'd', 'e']) {
    await t.rejects(put(await databases.get(name), 'x', { no: true }), { code: 'forbidden' })
  }
})

t.test('the limits of a call can change while the server runs', async (t) => {
  const { databases, notes } = await guarded(t, 'function () { for (;;); }')
  databases.setSettings({ limits: { ...DEFAULT_LIMITS, functionTimeout: 50 }, rules: DEFAULT_RULES })
  await t.rejects(put(notes, 'a'), { code: 'function_timeout' })
})

t.test('closing does not wait for a function that never ends', async (t) => {
  const { databases, notes } = await guarded(t, 'function () { for (;;); }', {
    settings: { limits: { ...DEFAULT_LIMITS, functionTimeout: 3_600_000 }, rules: DEFAULT_RULES },
  })
  const refused = t.rejects(put(notes, 'a'), { code: 'unavailable' })
  await databases.close()
  await refused
})
