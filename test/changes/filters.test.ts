import t from 'tap'
import { readFeedQuery } from '../../src/changes/changes-query.ts'
import { asDocIds, type FilterBody, readFilter, readFilterBody } from '../../src/changes/filters.ts'
import { CouchError } from '../../src/core/errors.ts'

async function filter(search: string, body?: FilterBody) {
  const query = readFeedQuery(new URLSearchParams(search), 60_000)
  return readFilter(query, body, async () => '{"method":"GET"}')
}

async function reasonOf(act: () => unknown): Promise<unknown> {
  try {
    await act()
    return 'nothing was thrown'
  } catch (thrown) {
    return thrown instanceof CouchError && [400, 413].includes(thrown.status) ? thrown.reason : thrown
  }
}

t.test('the filter is read from the query and the body', async (t) => {
  const selector = '{"a":1}'
  const ddoc = '_design/mobile'
  const cases: [search: string, body: FilterBody | undefined, expected: object][] = [
    ['', { docIds: ['a'], selector }, {}],
    ['filter=/', undefined, {}],
    ['filter=_doc_ids', { docIds: ['a'] }, { docIds: ['a'] }],
    ['filter=_doc_ids&doc_ids=["a","b"]', undefined, { docIds: ['a', 'b'] }],
    ['filter=_design', undefined, { filter: { kind: 'design' } }],
    ['filter=_selector', { selector }, { filter: { kind: 'selector', selector } }],
    ['filter=_selector', { selector, fields: [] }, { filter: { kind: 'selector', selector } }],
    [
      'filter=_selector',
      { selector, fields: ['a.b'] },
      { filter: { kind: 'selector', selector, fields: ['a.b'] } },
    ],
    ['filter=_view&view=mobile/all', undefined, { filter: { kind: 'view', ddoc, name: 'all' } }],
    [
      'filter=mobile/sync',
      undefined,
      { filter: { kind: 'function', ddoc, name: 'sync', request: '{"method":"GET"}' } },
    ],
    ['filter=mobile%252Fa//sync', undefined, { filter: { ddoc: '_design/mobile/a', name: 'sync' } }],
    ['filter=mobile/100%25', undefined, { filter: { ddoc, name: '100%' } }],
  ]
  for (const [search, body, expected] of cases) {
    const found = await filter(search, body)
    t.match(found, expected, search)
    t.same(Object.keys(found), Object.keys(expected), search)
  }
})

t.test('invalid filters are refused with the texts of protocol.md 5.6', async (t) => {
  const noIds = '`doc_ids` filter parameter is not a list of doc ids.'
  const cases: [search: string, body: FilterBody | undefined, reason: string][] = [
    ['filter=_doc_ids', undefined, noIds],
    ['filter=_doc_ids', {}, noIds],
    ['filter=_doc_ids&doc_ids={}', undefined, noIds],
    ['filter=_doc_ids&doc_ids=[1]', undefined, noIds],
    ['filter=_doc_ids&doc_ids=[', undefined, 'invalid UTF-8 JSON'],
    ['filter=_nothing', undefined, 'unknown builtin filter name'],
    ['filter=_nothing/sync', undefined, 'unknown builtin filter name'],
    ['filter=one', undefined, '`filter` must be of the form `designname/filtername`'],
    ['filter=one/two/three', undefined, '`filter` must be of the form `designname/filtername`'],
    ['filter=_selector', undefined, 'Selector must be specified in POST payload'],
    ['filter=_selector', {}, 'Selector error: expected a JSON object'],
    ['filter=_selector', { selector: '{}', fields: 'a' }, 'Selector error: fields must be JSON array'],
    ['filter=_selector', { selector: '{}', fields: null }, 'Selector error: fields must be JSON array'],
    ['filter=_selector', { selector: '{}', fields: ['a', 1] }, 'Invalid JSON for field spec: 1'],
    ['filter=_selector', { selector: '{}', fields: ['a..b'] }, 'Invalid field name: a..b'],
    [
      'filter=_selector',
      { selector: '{}', fields: Array(1001).fill('a') },
      'Selector error: there are more than 1000 fields',
    ],
    ['filter=_view', undefined, '`view` filter parameter is not provided.'],
    ['filter=_view&view=', undefined, '`view` filter parameter is not provided.'],
    ['filter=_view&view=one', undefined, '`view` must be of the form `designname/viewname`'],
  ]
  for (const [search, body, reason] of cases) {
    t.equal(await reasonOf(() => filter(search, body)), reason, search)
  }
})

t.test('the body of a POST is read and checked', async (t) => {
  const read = (text: string, withText = false) => readFilterBody({ bytes: Buffer.from(text) }, withText)
  t.same(await read('{"doc_ids":["a","b"]}'), { docIds: ['a', 'b'] })
  t.same(await read('{}'), {})
  t.same(await read('{"doc_ids":"a"}'), {})
  t.same(await read('{"selector": {"a": 1}, "fields": 3}'), { selector: '{"a":1}', fields: 3 })
  t.same(await read('{"a": 1}', true), { text: '{"a": 1}' })
  const cases: [act: () => unknown, reason: string | RegExp][] = [
    [() => read('[]'), 'Request body must be a JSON object'],
    [() => read('{"doc_ids":'), 'invalid UTF-8 JSON'],
    [() => read(`{"selector":{"a":"${'x'.repeat(1024 * 1024)}"}}`), /the selector is longer/],
    [() => read(`{"a":"${'x'.repeat(1024 * 1024)}"}`, true), /the request body is longer/],
  ]
  for (const [act, reason] of cases) t.match(await reasonOf(act), reason)
  t.equal(asDocIds(['a', 1]), undefined)
})
