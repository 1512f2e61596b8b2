/** Reading and caching the list of a database's validate functions. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { ValidateFunctions } from '../../src/documents/validate-functions.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { arrivals, path, worlds } from '../revisions/histories.ts'
import { type Json, openDatabase, type Path } from './helpers.ts'
import { openValidating, type Validating } from './hooked-sandbox.ts'

const FN = 'function () {}'

/** A store whose ranges are counted, with a hook before each. */
function watched(store: DatabaseStore) {
  const watch = { reads: 0, before: async () => {} }
  const readRange: DatabaseStore['readRange'] = async (range, paging, read) => {
    watch.reads += 1
    await watch.before()
    return store.readRange(range, paging, read)
  }
  const proxy = new Proxy(store, {
    get: (target, name) => {
      if (name === 'readRange') return readRange
      const member = Reflect.get(target, name)
      return typeof member === 'function' ? member.bind(target) : member
    },
  })
  return { proxy, watch }
}

t.test('functions of live design documents, in the order of their ids, with their version', async (t) => {
  const { store, put } = await openDatabase()
  const validators = new ValidateFunctions(store, 7)
  t.equal(validators.known, null)
  t.match(await validators.read(), { functions: [], key: '[]' })
  const rev = await put('_design/b', { validate_doc_update: FN })
  await put('_design/a', { language: 'javascript', validate_doc_update: FN, lib: { x: 1 } })
  await put('_design/none', { views: {} })
  await put('other', { validate_doc_update: FN })
  const list = await validators.read()
  t.equal(validators.known, list)
  t.equal(list.designVersion, (await store.view()).designVersion)
  t.equal(list.database, 'notes')
  t.match(list.functions, [
    { ddoc: '_design/a' },
    { database: 7, ddoc: '_design/b', rev, path: ['validate_doc_update'] },
  ])
  t.match(JSON.parse(list.functions[0]?.source ?? ''), {
    _id: '_design/a',
    validate_doc_update: FN,
    lib: { x: 1 },
  })
  await put('_design/b', { _rev: rev, _deleted: true, validate_doc_update: FN })
  const next = await validators.read()
  t.equal(next.functions.length, 1)
  t.not(next.key, list.key)
  t.equal(next.designVersion, list.designVersion + 1)
})

t.test('a list of more than one page of design documents', async (t) => {
  const { store, bulk } = await openDatabase()
  const docs = Array.from({ length: 250 }, (_, n) => ({
    _id: `_design/${1000 + n}`,
    validate_doc_update: FN,
  }))
  await bulk({ docs })
  const { functions } = await new ValidateFunctions(store, 1).read()
  t.same(
    functions.map(({ ddoc }) => ddoc),
    docs.map(({ _id }) => _id),
  )
})

t.test('concurrent calls share one read', async (t) => {
  const { store, put } = await openDatabase()
  await put('_design/a', { validate_doc_update: FN })
  const { proxy, watch } = watched(store)
  const validators = new ValidateFunctions(proxy, 1)
  const lists = await Promise.all([validators.read(), validators.read(), validators.read()])
  t.equal(new Set(lists).size, 1)
  t.equal(watch.reads, 1)
})

t.test('design documents that change between two pages are read again, up to a limit', async (t) => {
  const { store, put, bulk } = await openDatabase()
  await bulk({ docs: Array.from({ length: 150 }, (_, n) => ({ _id: `_design/${1000 + n}` })) })
  const { proxy, watch } = watched(store)
  const validators = new ValidateFunctions(proxy, 1)
  watch.before = async () => {
    if (watch.reads === 2) await put('_design/0', { validate_doc_update: FN })
  }
  const { functions, designVersion } = await validators.read()
  t.match(functions, [{ ddoc: '_design/0' }], 'a document that was written behind the reader is not missed')
  t.equal(designVersion, (await store.view()).designVersion)
  watch.before = async () => {
    await put(`_design/more-${watch.reads}`, {})
  }
  await t.rejects(validators.read(), { code: 'contended' })
  t.ok(watch.reads < 20)
})

t.test('an error during a read rejects all waiting calls, and the next call reads again', async (t) => {
  const { store, put } = await openDatabase()
  await put('_design/a', { validate_doc_update: FN })
  const { proxy, watch } = watched(store)
  const validators = new ValidateFunctions(proxy, 1)
  watch.before = async () => {
    throw new Error('disk')
  }
  await t.rejects(Promise.all([validators.read(), validators.read()]), { message: 'disk' })
  watch.before = async () => {}
  t.equal((await validators.read()).functions.length, 1)
})

t.test('a list that is too long for the cache is read for each request', async (t) => {
  const { store, put } = await openDatabase()
  const padding = 'x'.repeat(1_500_000)
  await put('_design/a', { validate_doc_update: FN, padding })
  const validators = new ValidateFunctions(store, 1)
  await validators.read()
  t.ok(validators.known)
  await put('_design/b', { validate_doc_update: FN, padding })
  t.equal((await validators.read()).functions.length, 2)
  t.equal(validators.known, null)
  t.match(await put('x', {}), /^1-/, 'the validate functions accept the document')
})

// Random edits under a validate function have the results of a simple model.

/** Uses both documents, so that a verdict depends on the stored document. */
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

/** The documents that a bulk of edits sends, given what its client has seen before. */
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

/** The stored leaves of a document with their bodies. */
async function leaves({ get }: Validating): Promise<Json> {
  const doc = await get('x', { conflicts: true, deletedConflicts: true, deleted: true }).catch(() => null)
  return doc
}

t.test('replicated revisions have the same result in one bulk as one by one', async () => {
  // A successor of a revision with an even number must not be even.
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
