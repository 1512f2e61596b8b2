/** Functions of stored design documents that do not compile, as a move reports them. */
import t from 'tap'
import { COPYING_USER } from '../../src/auth/accounts.ts'
import { SYSTEM_USER } from '../../src/core/types.ts'
import { openValidating } from './hooked-sandbox.ts'

t.test('validate functions first, then views, each with the reason', async (t) => {
  const { database } = await openValidating()
  const map = 'function (doc) { emit(doc._id) }'
  const docs = [
    {
      _id: '_design/a',
      views: { v: { map: 'function map(doc) {}' }, w: { map, reduce: 'for each (x in y)' } },
    },
    { _id: '_design/b', validate_doc_update: 'function k() {}\nfunction validate() {}' },
    { _id: '_design/c', validate_doc_update: 'function () {}', views: { v: { map } }, filters: { f: 'no' } },
    {
      _id: '_design/d',
      language: 'erlang',
      validate_doc_update: 'fun(_) -> ok end.',
      views: { v: { map: 'fun' } },
    },
    { _id: '_design/e', views: { v: null }, validate_doc_update: 5 },
    { _id: '_design/f', validate_doc_update: 'async () => {}' },
    { _id: '_design/g', validate_doc_update: '' },
    { _id: 'ordinary', validate_doc_update: 'no' },
  ].map((doc) => ({ ...doc, _rev: '1-a' }))
  const body = { bytes: Buffer.from(JSON.stringify({ new_edits: false, docs })) }
  for await (const _chunk of database.bulkDocs(COPYING_USER, body));
  t.match(await database.brokenFunctions(SYSTEM_USER), [
    { ddoc: '_design/b', path: ['validate_doc_update'], reason: /^Expression does not eval to a function/ },
    { ddoc: '_design/f', path: ['validate_doc_update'], reason: /^Expression does not eval to a function/ },
    { ddoc: '_design/g', path: ['validate_doc_update'], reason: /^missing validate_doc_update function/ },
    { ddoc: '_design/a', path: ['views', 'v', 'map'], reason: /^Expression does not eval to a function/ },
    { ddoc: '_design/a', path: ['views', 'w', 'reduce'], reason: /^SyntaxError/ },
  ])
})

t.test('at most ten are reported', async (t) => {
  const { database } = await openValidating()
  const docs = Array.from({ length: 30 }, (_, n) => ({
    _id: `_design/${n}`,
    _rev: '1-a',
    validate_doc_update: '5',
  }))
  const body = { bytes: Buffer.from(JSON.stringify({ new_edits: false, docs })) }
  for await (const _chunk of database.bulkDocs(COPYING_USER, body));
  t.equal((await database.brokenFunctions(SYSTEM_USER)).length, 10)
})
