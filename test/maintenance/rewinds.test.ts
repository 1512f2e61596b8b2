import t from 'tap'
import type { Databases } from '../../src/threads/databases.ts'
import { Rewinds } from '../../src/time-machine/rewinds.ts'

const ADMIN = { name: null, roles: ['_admin'] }
const ORDER = { at: 1, dryRun: false }

/** A database whose rewind says these lines. */
function over(lines: readonly string[]): Rewinds {
  const rewind = async function* () {
    for (const line of lines) yield Buffer.from(`${line}\n`)
  }
  return new Rewinds({ get: () => ({ incarnation: 7, rewind }) } as unknown as Databases)
}

t.test('it is a task until its last line, and no other begins meanwhile', async (t) => {
  const rewinds = over([
    '{"documents":10}',
    '{"id":"a"}\n{"progress":{"looked_at":4,"counts":{}}}',
    '{"done":true,"looked_at":10,"counts":{}}',
  ])
  const lines = rewinds.run(ADMIN, 'notes', ORDER)
  await lines.next()
  t.match(rewinds.tasks(), [{ database: 'notes', incarnation: 7, done: 0, total: 10 }])
  await lines.next()
  t.match(rewinds.tasks(), [{ done: 4, total: 10 }])
  await t.rejects(rewinds.run(ADMIN, 'notes', ORDER).next(), { code: 'conflict' })
  await rewinds.run(ADMIN, 'notes', { at: 1, dryRun: true }).next()
  await lines.next()
  t.strictSame(rewinds.tasks(), [], 'who has read the last line may begin the next')
  const next = rewinds.run(ADMIN, 'notes', ORDER)
  await next.next()
  await lines.next()
  t.equal(rewinds.tasks().length, 1, 'and it is not ended by the end of the one before')
  await next.return(undefined)
  t.strictSame(rewinds.tasks(), [], 'a reader who goes ends it')
})
