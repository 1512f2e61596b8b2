/** `_revs_diff` and `_missing_revs`: protocol.md 4.3, 19.3. */
import t from 'tap'
import { ADMIN, body, openDatabase, parse } from './helpers.ts'

async function stored() {
  const opened = await openDatabase()
  await opened.replicate('d', { start: 2, ids: ['b', 'a'] }, { start: 2, ids: ['c', 'a'] })
  const diff = async (request: unknown) => parse(await opened.database.revsDiff(ADMIN, body(request)))
  const missing = async (request: unknown) => parse(await opened.database.missingRevs(ADMIN, body(request)))
  return { ...opened, diff, missing }
}

t.test('the vectors of 19.3', async (t) => {
  const { diff } = await stored()
  t.same(await diff({ d: ['1-xyz', '2-def', '3-klm', '2-b'] }), {
    d: { missing: ['1-xyz', '2-def', '3-klm'], possible_ancestors: ['2-c', '2-b'] },
  })
  t.same(await diff({ d: ['1-pqr'] }), { d: { missing: ['1-pqr'] } })
  t.same(await diff({ d: ['1-a', '2-b'] }), {})
  t.same(await diff({ d: [] }), {})
  t.same(await diff({}), {})
  t.same(await diff({ n: ['1-a'] }), { n: { missing: ['1-a'] } })
})

t.test('what is no request', async (t) => {
  const { diff, missing } = await stored()
  const cases: [request: unknown, code: string][] = [
    [{ d: '1-a' }, 'invalid_revs_list'],
    [{ d: ['1'] }, 'invalid_rev'],
    [{ d: ['1-a', 2] }, 'invalid_rev'],
    [{ n: null }, 'invalid_revs_list'],
    [[], 'body_not_object'],
    ['', 'invalid_json'],
    ['{', 'invalid_json'],
  ]
  for (const [request, code] of cases) {
    await t.rejects(diff(request), { code, status: 400 }, JSON.stringify(request))
    await t.rejects(missing(request), { code, status: 400 })
  }
})

t.test('what is wrong is told wherever it stands, and of two things the first', async (t) => {
  const { diff, missing } = await stored()
  const many = Object.fromEntries(Array.from({ length: 250 }, (_, n) => [`m${n}`, ['1-a']]))
  const cases: [request: unknown, code: string][] = [
    [{ d: ['2-c', 'x'] }, 'invalid_rev'],
    [{ d: ['2-c'], e: ['x'], f: null }, 'invalid_rev'],
    [{ d: ['2-c'], e: null, f: ['x'] }, 'invalid_revs_list'],
    [{ ...many, last: ['x'] }, 'invalid_rev'],
  ]
  for (const [request, code] of cases) {
    await t.rejects(diff(request), { code, status: 400 }, JSON.stringify(request))
    await t.rejects(missing(request), { code, status: 400 })
  }
})

t.test('_missing_revs says the same in its own form', async (t) => {
  const { missing } = await stored()
  t.same(await missing({ d: ['1-a', '2-def', '3-klm'], n: ['1-a'], known: [] }), {
    missing_revs: { d: ['2-def', '3-klm'], n: ['1-a'] },
  })
  t.same(await missing({ d: ['2-b'] }), { missing_revs: {} })
})

t.test('a revision is known by any of the texts that name it', async (t) => {
  const { diff, missing } = await stored()
  const request = { d: ['2-c', '+2-c', '02-b', '1-a'] }
  t.same(await diff(request), {})
  t.same(await missing(request), { missing_revs: {} })
})

t.test('deleted leaves are known, and possible ancestors', async (t) => {
  const { diff, replicate } = await stored()
  await replicate('d', { start: 3, ids: ['x', 'b', 'a'], deleted: true })
  t.same(await diff({ d: ['3-x'] }), {})
  t.same(await diff({ d: ['4-new'] }), { d: { missing: ['4-new'], possible_ancestors: ['2-c', '3-x'] } })
})

t.test('a stored ancestor whose body is gone is known', async (t) => {
  const { put, diff } = await stored()
  const first = await put('x', {})
  await put('x', { _rev: first })
  t.same(await diff({ x: [first] }), {})
})

t.test('hex is compared without case', async (t) => {
  const { diff, put } = await stored()
  t.same(await diff({ x: [(await put('x', {})).toUpperCase()] }), {})
})

t.test('_local documents and what can be no id are always missing', async (t) => {
  const { diff, put } = await stored()
  await put('_local/a', {})
  await put('\ufffd', {}, { rev: '1-a', newEdits: false })
  t.same(await diff({ '_local/a': ['0-1'] }), { '_local/a': { missing: ['0-1'] } })
  t.same(await diff('{"\\ud800":["1-a"]}'), { '\ud800': { missing: ['1-a'] } })
})

t.test('__proto__ is a name like any other', async (t) => {
  const { diff, put } = await stored()
  const request = '{"__proto__":["1-a"],"constructor":["1-a"]}'
  t.same(Object.keys(await diff(request)), ['__proto__', 'constructor'])
  await put('constructor', {}, { rev: '1-a', newEdits: false })
  t.same(Object.keys(await diff(request)), ['__proto__'])
})

t.test('more documents than are looked up at a time', async (t) => {
  const { diff, bulk } = await stored()
  const ids = Array.from({ length: 333 }, (_, n) => `m${n}`)
  await bulk({ new_edits: false, docs: ids.filter((_, n) => n % 2).map((_id) => ({ _id, _rev: '1-a' })) })
  const answer = await diff(Object.fromEntries(ids.map((id) => [id, ['1-a']])))
  t.same(
    Object.keys(answer),
    ids.filter((_, n) => n % 2 === 0),
  )
})
