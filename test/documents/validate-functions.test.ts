/** The list of a database's validate functions, read and kept. */
import t from 'tap'
import { ValidateFunctions } from '../../src/documents/validate-functions.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { openDatabase } from './helpers.ts'

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

t.test(
  'functions of live design documents, in the order of their ids, with the version they are of',
  async (t) => {
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
  },
)

t.test('more design documents than a page holds', async (t) => {
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

t.test('one reading serves all who ask meanwhile', async (t) => {
  const { store, put } = await openDatabase()
  await put('_design/a', { validate_doc_update: FN })
  const { proxy, watch } = watched(store)
  const validators = new ValidateFunctions(proxy, 1)
  const lists = await Promise.all([validators.read(), validators.read(), validators.read()])
  t.equal(new Set(lists).size, 1)
  t.equal(watch.reads, 1)
})

t.test(
  'design documents that change between two pages are read again, and given up in the end',
  async (t) => {
    const { store, put, bulk } = await openDatabase()
    await bulk({ docs: Array.from({ length: 150 }, (_, n) => ({ _id: `_design/${1000 + n}` })) })
    const { proxy, watch } = watched(store)
    const validators = new ValidateFunctions(proxy, 1)
    watch.before = async () => {
      if (watch.reads === 2) await put('_design/0', { validate_doc_update: FN })
    }
    const { functions, designVersion } = await validators.read()
    t.match(functions, [{ ddoc: '_design/0' }], 'what came behind the reader is not missed')
    t.equal(designVersion, (await store.view()).designVersion)
    watch.before = async () => {
      await put(`_design/more-${watch.reads}`, {})
    }
    await t.rejects(validators.read(), { code: 'contended' })
    t.ok(watch.reads < 20)
  },
)

t.test('a fault while it is read is told to those who wait, and the next reads again', async (t) => {
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

t.test('a list that is too long to be kept is read for each request', async (t) => {
  const { store, put } = await openDatabase()
  const padding = 'x'.repeat(1_500_000)
  await put('_design/a', { validate_doc_update: FN, padding })
  const validators = new ValidateFunctions(store, 1)
  await validators.read()
  t.ok(validators.known)
  await put('_design/b', { validate_doc_update: FN, padding })
  t.equal((await validators.read()).functions.length, 2)
  t.equal(validators.known, null)
  t.match(await put('x', {}), /^1-/, 'and a document passes them')
})
