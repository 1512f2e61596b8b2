/** What is checked when a design document is written: protocol.md 9.1. */
import t, { type Test } from 'tap'
import { ADMIN, ANNA, body, type Json } from './helpers.ts'
import { openValidating } from './hooked-sandbox.ts'

const MAP = 'function (doc) { emit(doc._id) }'

async function refused(
  t: Test,
  doc: Json,
  reason: string | RegExp,
  code = 'invalid_design_doc',
): Promise<void> {
  const { put, bulk, store } = await openValidating()
  const name = JSON.stringify(doc)
  await t.rejects(put('_design/x', doc), { code, reason, status: 400 }, name)
  const rows = await bulk({ docs: [{ _id: 'before' }, { ...doc, _id: '_design/x' }, { _id: 'behind' }] })
  t.match(rows, [{ ok: true }, { id: '_design/x', error: code, reason }, { ok: true }], `${name}, in a bulk`)
  const replicated = { ...doc, _id: '_design/x', _rev: '1-a' }
  const failures = await bulk({ new_edits: false, docs: [replicated, { _id: 'other', _rev: '1-a' }] })
  t.match(failures, [{ id: '_design/x', rev: '1-a', error: code, reason }], `${name}, replicated`)
  t.same(await store.readDocs(['_design/x'], (state) => state), [null], `${name} is not stored`)
}

t.test('members of the wrong type', async (t) => {
  const cases: [doc: Json, path: string, type: string][] = [
    [{ filters: 1 }, 'filters', 'object'],
    [{ filters: [] }, 'filters', 'object'],
    [{ filters: { a: 1 } }, 'filters.a', 'object or string'],
    [{ language: null }, 'language', 'string'],
    [{ lists: '' }, 'lists', 'object'],
    [{ lists: { a: null } }, 'lists.a', 'object or string'],
    [{ options: true }, 'options', 'object'],
    [{ options: { include_design: 1 } }, 'options.include_design', 'boolean'],
    [{ options: { local_seq: 'true' } }, 'options.local_seq', 'boolean'],
    [{ options: { partitioned: null } }, 'options.partitioned', 'boolean'],
    [{ rewrites: {} }, 'rewrites', 'string or array'],
    [{ shows: { a: [] } }, 'shows.a', 'object or string'],
    [{ updates: { a: true } }, 'updates.a', 'object or string'],
    [{ validate_doc_update: {} }, 'validate_doc_update', 'string'],
    [{ validate_doc_update: null }, 'validate_doc_update', 'string'],
    [{ views: [] }, 'views', 'object'],
    [{ views: { a: MAP } }, 'views.a', 'object'],
    [{ views: { lib: MAP } }, 'views.lib', 'object'],
    [{ views: { a: { map: {} } } }, 'views.a.map', 'string'],
    [{ views: { a: { map: null } } }, 'views.a.map', 'string'],
    [{ views: { a: { map: MAP, reduce: 1 } } }, 'views.a.reduce', 'string'],
    [{ language: 'query', views: { a: { map: MAP } } }, 'views.a.map', 'object'],
    [{ language: 'erlang', views: { a: { map: {} } } }, 'views.a.map', 'string'],
  ]
  for (const [doc, path, type] of cases) await refused(t, doc, `\`${path}\` field must have ${type} type`)
})

t.test('a view without a map function, and a built-in reduce function that there is not', async (t) => {
  await refused(t, { views: { a: {} } }, 'View `a` must contain map function')
  await refused(t, { views: { a: { reduce: '_count' } } }, 'View `a` must contain map function')
  for (const reduce of ['_nope', '_', '_top_0', '_top_101', '_bottom_x']) {
    await refused(
      t,
      { views: { a: { map: MAP, reduce } } },
      `\`${reduce}\` is not a supported reduce function.`,
    )
  }
})

t.test('functions of views that do not compile', async (t) => {
  const failed = (member: string) =>
    new RegExp(`^Compilation of the ${member} function in the 'a' view failed: (?!Compilation).+`)
  await refused(t, { views: { a: { map: 'function (' } } }, failed('map'), 'compilation_error')
  await refused(t, { views: { a: { map: '1' } } }, failed('map'), 'compilation_error')
  const reduce = 'function (keys { }'
  await refused(t, { views: { a: { map: MAP, reduce } } }, failed('reduce'), 'compilation_error')
})

t.test('what may stand in a design document', async (t) => {
  const good: Json[] = [
    {},
    { language: 'javascript', autoupdate: 'false', anything: [1] },
    { views: {} },
    { views: { a: { map: MAP }, b: { map: MAP, reduce: '_sum' } } },
    { views: { a: { map: MAP, reduce: 'function (keys, values) { return sum(values) }' } } },
    { views: { lib: { tools: 'exports.x = 1', deep: { map: {} } }, a: { map: MAP } } },
    { views: { a: { map: MAP, reduce: '_count\n' }, b: { map: MAP, reduce: '_stats' } } },
    { views: { a: { map: MAP, reduce: '_top_10' }, b: { map: MAP, reduce: '_bottom_100\n' } } },
    { views: { a: { map: MAP, reduce: '_approx_count_distinct' } } },
    { filters: { a: 'this does not compile', b: { c: 'function () {}' } }, validate_doc_update: 'nor this' },
    { updates: { a: '' }, shows: { a: '' }, lists: { a: '' }, rewrites: [], options: { partitioned: false } },
    { rewrites: 'function (req) {}', options: { include_design: true, local_seq: false, other: 1 } },
    { language: 'query', views: { a: { map: { fields: { n: 'asc' } }, reduce: '_count' } } },
    { language: 'erlang', views: { a: { map: 'fun({Doc}) -> ok end.' } } },
  ]
  for (const doc of good) {
    const { put, bulk } = await openValidating()
    t.match(await put('_design/x', doc), /^1-/, JSON.stringify(doc))
    t.same(await bulk({ new_edits: false, docs: [{ ...doc, _id: '_design/y', _rev: '1-a' }] }), [])
  }
})

t.test('only functions of views are compiled, and nothing is run for a document without', async (t) => {
  const { put, sandbox } = await openValidating()
  await put('_design/plain', { filters: { a: 'function () {}' }, validate_doc_update: 'function () {}' })
  await put('_design/mango', { language: 'query', views: { a: { map: {} } } })
  t.same(sandbox.compiled, [])
  const reduce = 'function (keys, values) { return 1 }'
  await put('_design/views', {
    views: { lib: { x: 'exports.y = 1' }, a: { map: MAP, reduce: '_sum' }, b: { map: MAP, reduce } },
  })
  t.same(sandbox.compiled, ['views.a.map', 'views.b.map', 'views.b.reduce'])
})

t.test('a deleted design document is not checked, nor one that would be a conflict', async (t) => {
  const { put, bulk, sandbox } = await openValidating()
  const rev = await put('_design/x', {})
  t.match(await put('_design/x', { _rev: rev, _deleted: true, views: 1 }), /^2-/)
  t.same(
    await bulk({ new_edits: false, docs: [{ _id: '_design/y', _rev: '1-a', _deleted: true, views: 1 }] }),
    [],
  )
  await put('_design/z', {})
  await t.rejects(put('_design/z', { views: { a: { map: 'function (' } } }), { code: 'conflict' })
  t.same(sandbox.compiled, [])
})

t.test('who may not write design documents learns nothing, and nothing is compiled', async (t) => {
  const { database, sandbox } = await openValidating()
  await database.setSecurity(ADMIN, { members: { names: ['anna'], roles: [] } })
  const doc = body({ views: { a: { map: 'function (' } } })
  await t.rejects(database.put(ANNA, '_design/x', doc, {}), {
    code: 'forbidden',
    reason: 'You are not a db or server admin.',
  })
  t.same(sandbox.compiled, [])
})

t.test('several edits of one design document in a bulk', async (t) => {
  const { bulk, replicate, get } = await openValidating()
  const broken = { _id: '_design/x', views: { a: { map: '(' } } }
  t.match(await bulk({ docs: [broken, { _id: '_design/x', n: 1 }, { _id: '_design/x', n: 2 }] }), [
    { error: 'compilation_error' },
    { ok: true, rev: /^1-/ },
    { error: 'conflict' },
  ])
  t.match(await get('_design/x'), { n: 1 })
  const failures = await replicate(
    '_design/y',
    { start: 1, ids: ['a'], doc: { views: 1 } },
    { start: 1, ids: ['b'], doc: { n: 1 } },
  )
  t.match(failures, [{ rev: '1-a', error: 'invalid_design_doc' }])
  t.equal(failures.length, 1)
})
