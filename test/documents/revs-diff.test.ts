/** `_revs_diff` and `_missing_revs` (protocol.md 4.3), beyond the rows of test/surface. */
import t from 'tap'
import { ADMIN, body, openDatabase, parse } from './helpers.ts'

async function stored() {
  const opened = await openDatabase()
  await opened.replicate('d', { start: 2, ids: ['b', 'a'] }, { start: 2, ids: ['c', 'a'] })
  const diff = async (request: unknown) => parse(await opened.database.revsDiff(ADMIN, body(request)))
  const missing = async (request: unknown) => parse(await opened.database.missingRevs(ADMIN, body(request)))
  return { ...opened, diff, missing }
}

t.test('the first error of a request is reported at any position', async (t) => {
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

t.test('a revision is known in every spelling', async (t) => {
  const { diff, missing } = await stored()
  const request = { d: ['2-c', '+2-c', '02-b', '1-a'] }
  t.same(await diff(request), {})
  t.same(await missing(request), { missing_revs: {} })
})

t.test('hexadecimal ids are case-insensitive', async (t) => {
  const { diff, put } = await stored()
  t.same(await diff({ x: [(await put('x', {})).toUpperCase()] }), {})
})

t.test('_local documents and invalid ids are always missing', async (t) => {
  const { diff, put } = await stored()
  await put('_local/a', {})
  await put('\ufffd', {}, { rev: '1-a', newEdits: false })
  t.same(await diff({ '_local/a': ['0-1'] }), { '_local/a': { missing: ['0-1'] } })
  t.same(await diff('{"\\ud800":["1-a"]}'), { '\ud800': { missing: ['1-a'] } })
})

t.test('__proto__ is an ordinary name', async (t) => {
  const { diff, put } = await stored()
  const request = '{"__proto__":["1-a"],"constructor":["1-a"]}'
  t.same(Object.keys(await diff(request)), ['__proto__', 'constructor'])
  await put('constructor', {}, { rev: '1-a', newEdits: false })
  t.same(Object.keys(await diff(request)), ['__proto__'])
})

t.test('a request for more documents than one lookup reads', async (t) => {
  const { diff, bulk } = await stored()
  const ids = Array.from({ length: 333 }, (_, n) => `m${n}`)
  await bulk({ new_edits: false, docs: ids.filter((_, n) => n % 2).map((_id) => ({ _id, _rev: '1-a' })) })
  const answer = await diff(Object.fromEntries(ids.map((id) => [id, ['1-a']])))
  t.same(
    Object.keys(answer),
    ids.filter((_, n) => n % 2 === 0),
  )
})
