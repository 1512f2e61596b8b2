/** Random edits under a validate function: what comes of them is what a simple model says. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { arrivals, path, worlds } from '../revisions/histories.ts'
import type { Json, Path } from './helpers.ts'
import { openValidating, type Validating } from './hooked-sandbox.ts'

/** Looks at both documents, so that a verdict depends on what is stored. */
const RULES = `function (newDoc, oldDoc) {
  if (newDoc.value === 3) throw { forbidden: 'three' }
  if (oldDoc && oldDoc.value === 2 && newDoc.value === 1) throw { unauthorized: 'down' }
  if (oldDoc && oldDoc.value === 0 && newDoc._deleted) throw 'zero is kept'
}`

interface Doc {
  readonly rev: string
  readonly value: number
  readonly deleted: boolean
}

function ruled(value: number, deleted: boolean, old: Doc | null): string | null {
  if (value === 3) return 'forbidden'
  if (old?.value === 2 && value === 1) return 'unauthorized'
  return old?.value === 0 && deleted ? 'unknown_error' : null
}

const EDIT = fc.record({
  id: fc.constantFrom('a', 'b', 'c'),
  value: fc.nat(3),
  deleted: fc.boolean(),
  parent: fc.constantFrom('current', 'current', 'none', 'older'),
})
const BULKS = fc.array(
  fc.record({ edits: fc.array(EDIT, { minLength: 1, maxLength: 8 }), isRuled: fc.boolean() }),
  { minLength: 1, maxLength: 5 },
)

/** What a bulk of edits sends, from what its client has seen before. */
function request(
  edits: readonly (typeof EDIT extends fc.Arbitrary<infer E> ? E : never)[],
  seen: Map<string, string[]>,
) {
  return edits.map(({ id, value, deleted, parent }) => {
    const revs = seen.get(id) ?? []
    const _rev = parent === 'none' ? undefined : revs.at(parent === 'current' ? -1 : 0)
    return { _id: id, value, ...(_rev !== undefined && { _rev }), ...(deleted && { _deleted: true }) }
  })
}

/** The error of an edit's row, or null; protocol.md 3.3. */
function expected(
  doc: ReturnType<typeof request>[number],
  stored: Doc | undefined,
  isRuled: boolean,
): string | null {
  const deleted = doc._deleted === true
  if (doc._rev === undefined) {
    if (stored !== undefined && (!stored.deleted || deleted)) return 'conflict'
    return isRuled ? ruled(doc.value, deleted, null) : null
  }
  if (stored === undefined || stored.deleted || stored.rev !== doc._rev) return 'conflict'
  return isRuled ? ruled(doc.value, deleted, stored) : null
}

t.test('interactive edits', async () => {
  await fc.assert(
    fc.asyncProperty(BULKS, async (bulks) => {
      const { validate, bulk } = await openValidating()
      const stored = new Map<string, Doc>()
      const seen = new Map<string, string[]>()
      for (const { edits, isRuled } of bulks) {
        await validate(isRuled ? RULES : 'function () {}')
        const docs = request(edits, seen)
        const rows: Json[] = await bulk({ docs })
        for (const [at, doc] of docs.entries()) {
          const { rev, error = null } = rows[at]
          assert.equal(error, expected(doc, stored.get(doc._id), isRuled), JSON.stringify([docs, rows, at]))
          if (error !== null) continue
          stored.set(doc._id, { rev, value: doc.value, deleted: doc._deleted === true })
          seen.set(doc._id, [...(seen.get(doc._id) ?? []), rev])
        }
      }
    }),
    { numRuns: 60 },
  )
})

/** What is stored of a document: its leaves with their bodies. */
async function leaves({ get }: Validating): Promise<Json> {
  const doc = await get('x', { conflicts: true, deletedConflicts: true, deleted: true }).catch(() => null)
  return doc
}

t.test('replicated revisions: in one bulk as one by one', async () => {
  // What stands on a revision of an even number must not be even itself.
  const even = (doc: string) => `${doc} && ${doc}.number % 2 === 0`
  const rules = `function (newDoc, oldDoc) {
    if (${even('newDoc')} && ${even('oldDoc')}) throw { forbidden: 'two in a row' }
    if (newDoc.number % 5 === 0) throw { forbidden: 'five' }
  }`
  await fc.assert(
    fc.asyncProperty(worlds(20), arrivals(10), async (world, all) => {
      const paths = all.map((arrival): Path => {
        const nodes = path(world, arrival)
        const { pos, id, deleted } = nodes[0] as (typeof nodes)[number]
        const number = [...id].reduce((sum, char) => sum + char.charCodeAt(0), 0)
        return { start: pos, ids: nodes.map((node) => node.id), deleted, doc: { number } }
      })
      const [together, apart] = [await openValidating(), await openValidating()]
      await together.validate(rules)
      await apart.validate(rules)
      const failures = await together.replicate('x', ...paths)
      const oneByOne: Json[] = []
      for (const one of paths) oneByOne.push(...(await apart.replicate('x', one)))
      assert.deepEqual(failures, oneByOne)
      assert.deepEqual(await leaves(together), await leaves(apart))
    }),
    { numRuns: 60 },
  )
})
