/** The environment of functions, and the treatment of their results; protocol.md 9.2. */
import t from 'tap'
import { filter, filterOf, map, reduceOf, shared, validatorOf, verdictOf } from './functions.ts'

t.test('a filter passes documents with a truthy result', async (t) => {
  t.same(await filter('function (doc) { return doc.v }', [{ v: 1 }, { v: 0 }, { v: 'x' }, { v: '' }, {}]), [
    true,
    false,
    true,
    false,
    false,
  ])
})

t.test('a filter has the request, and the design document as this', async (t) => {
  const fn = filterOf('function (doc, req) { return doc.v === req.query.v && this.greeting === "hello" }', {
    greeting: 'hello',
  })
  t.same(await shared.filter(fn, ['{"v":"1"}', '{"v":"2"}'], '{"query":{"v":"1"}}'), [true, false])
})

t.test('a filter that throws fails with the thrown value', async (t) => {
  const failsWith = (thrown: string, reason: string) =>
    t.rejects(filter(`function () { throw ${thrown} }`, [{}]), { code: 'function_error', reason }, thrown)
  await failsWith(`'a text'`, 'a text')
  await failsWith(`new TypeError('no')`, 'TypeError: no')
  await failsWith(`{ a: 1 }`, '{"a":1}')
  await failsWith('undefined', 'undefined')
  await failsWith('null', 'null')
  await failsWith(`Symbol('s')`, 'Symbol(s)')
  await failsWith('1n', 'something that cannot be shown as text')
  await failsWith(
    '(function () { var a = {}; a.a = a; return a })()',
    'something that cannot be shown as text',
  )
  await failsWith(`'x'.repeat(5000000)`, `${'x'.repeat(1000)}...`)
  await t.rejects(filter('function (doc) { return doc.a.b }', [{}]), {
    code: 'function_error',
    reason: /^TypeError: .*'b' of undefined/,
  })
})

t.test('a map emits pairs in their order, and undefined is null', async (t) => {
  const rows = await map(
    'function (doc) { emit(doc.b, 1); emit(doc.a, undefined); emit([doc.a, undefined], { x: undefined }); emit() }',
    [{ a: 1, b: 'two' }, {}],
  )
  t.same(rows[0], [
    ['two', 1],
    [1, null],
    [[1, null], {}],
    [null, null],
  ])
  t.equal((rows[1] as unknown[]).length, 4)
})

t.test('a map that throws emits nothing for that document', async (t) => {
  t.same(await map('function (doc) { emit(1); doc.a.b; emit(2) }', [{}, { a: {} }, { a: null }]), [
    [],
    [
      [1, null],
      [2, null],
    ],
    [],
  ])
  t.same(await map('function (doc) { var a = {}; a.a = a; emit(a) }', [{}]), [[]])
})

t.test('a map cannot change its document', async (t) => {
  const text = 'function (doc) { doc.a = 2; doc.deep.list.x = 1; delete doc.a; emit(doc.a, doc.deep) }'
  t.same(await map(text, [{ a: 1, deep: { list: [] } }]), [[[1, { list: [] }]]])
  t.same(await map('function (doc) { "use strict"; doc.a = 2; emit(1) }', [{ a: 1 }]), [[]])
})

t.test('a reduce has keys, values and whether it reduces again', async (t) => {
  const reduce = reduceOf('function (keys, values, rereduce) { return [keys, sum(values), rereduce] }')
  const results = await shared.reduce(reduce, [
    { keys: '[[1,"a"],[2,"b"]]', values: '[1,2]', rereduce: false },
    { keys: 'null', values: '[3,4]', rereduce: true },
  ])
  t.same(results, ['[[[1,"a"],[2,"b"]],3,false]', '[null,7,true]'])
  const failing = reduceOf('function (keys, values) { return values[0].x.y }')
  const calls = ['[{}]', '[{"x":{"y":1}}]', '[{"x":{}}]'].map((values) => ({
    keys: 'null',
    values,
    rereduce: true,
  }))
  t.same(await shared.reduce(failing, calls), ['null', '1', 'null'])
})

t.test('the value that a validator throws is its verdict', async (t) => {
  t.equal(await verdictOf('return false'), null)
  t.equal(await verdictOf(''), null)
  t.same(await verdictOf(`throw({ forbidden: 'no' })`), { error: 'forbidden', reason: 'no' })
  t.same(await verdictOf(`throw({ unauthorized: 'who' })`), { error: 'unauthorized', reason: 'who' })
  t.same(await verdictOf(`throw({ forbidden: { a: [1] } })`), { error: 'forbidden', reason: { a: [1] } })
  t.same(await verdictOf(`throw({ forbidden: undefined })`), { error: 'forbidden', reason: null })
  t.same(await verdictOf(`var e = new Error('x'); e.forbidden = 'no'; throw e`), {
    error: 'forbidden',
    reason: 'no',
  })
  t.same(await verdictOf(`throw 'text'`), { error: 'unknown_error', reason: 'text' })
  t.same(await verdictOf(`throw new Error('x')`), { error: 'unknown_error', reason: 'Error: x' })
  t.same(await verdictOf(`throw({ odd: 'x' })`), { error: 'unknown_error', reason: 'x' })
  t.same(await verdictOf(`throw({ odd: 'x', even: 2 })`), {
    error: 'unknown_error',
    reason: '{"odd":"x","even":2}',
  })
  t.same(await verdictOf(`throw ['error', 'odd', { a: 1 }]`), { error: 'odd', reason: { a: 1 } })
  t.same(await verdictOf(`throw ['fatal', 'odd', 'x']`), { error: 'odd', reason: 'x' })
  t.same(await verdictOf(`throw ['error', 'odd']`), { error: 'unknown_error', reason: '["error","odd"]' })
  t.equal((await verdictOf(`throw ['error', 'y'.repeat(5000000), '']`))?.error.length, 203)
  t.same(await verdictOf('throw undefined'), { error: 'unknown_error', reason: 'undefined' })
  t.same(await verdictOf('throw null'), { error: 'unknown_error', reason: 'null' })
  t.match(await verdictOf('doc.x'), { error: 'unknown_error', reason: /^ReferenceError/ })
})

t.test('the size of a verdict is limited, whatever was thrown', async (t) => {
  const long = await verdictOf(`throw({ forbidden: 'y'.repeat(5000000) })`)
  t.same(long, { error: 'forbidden', reason: `${'y'.repeat(8192)}...` })
  const cyclic = await verdictOf('var a = {}; a.a = a; throw { forbidden: a }')
  t.same(cyclic, { error: 'forbidden', reason: 'something that cannot be shown as text' })
  t.match(await verdictOf('throw { forbidden: { toJSON() { throw 5 } } }'), { error: 'forbidden' })
  t.match(await verdictOf('throw new Proxy({}, { ownKeys() { throw 7 } })'), {
    error: 'unknown_error',
    reason: '7',
  })
})

t.test('a validator has both documents, the user and the security object', async (t) => {
  const fn = validatorOf(
    'function (newDoc, oldDoc, userCtx, secObj) { throw { forbidden: [newDoc, oldDoc, userCtx, secObj, isArray([])] } }',
  )
  const call = {
    newDoc: '{"_id":"a"}',
    userCtx: '{"db":"x","name":null,"roles":[]}',
    security: '{"admins":{}}',
  }
  const verdicts = await shared.validate(fn, [
    { ...call, oldDoc: 'null' },
    { ...call, oldDoc: '{"_id":"a","_deleted":true}' },
  ])
  const rest = [JSON.parse(call.userCtx), { admins: {} }, true]
  t.same(verdicts, [
    { error: 'forbidden', reason: [{ _id: 'a' }, null, ...rest] },
    { error: 'forbidden', reason: [{ _id: 'a' }, { _id: 'a', _deleted: true }, ...rest] },
  ])
})

t.test('the environment is CouchDB’s and nothing more', async (t) => {
  const names = ['emit', 'log', 'sum', 'isArray', 'toJSON', 'require', 'JSON', 'Date', 'Math', 'RegExp']
  const absent = ['console', 'setTimeout', 'process', 'fetch', 'std', 'os', 'WebAssembly', 'Atomics']
  const found = await map(
    `function () { for (const name of ${JSON.stringify([...names, ...absent])}) emit(name, typeof globalThis[name]) }`,
    [{}],
  )
  const types = Object.fromEntries(found[0] as [string, string][])
  for (const name of names) t.not(types[name], 'undefined', name)
  for (const name of absent) t.equal(types[name], 'undefined', name)
  t.same(
    await map(
      'function () { log({}); emit(isArray([]), isArray({})); emit(toJSON({ a: 1 }), sum([1, 2])) }',
      [{}],
    ),
    [
      [
        [true, false],
        ['{"a":1}', 3],
      ],
    ],
  )
})

t.test('the language is ES2020 and later', async (t) => {
  const modern = `(doc) => {
    class A { #x = 1; get x() { return this.#x } }
    const { a, ...rest } = doc
    return doc?.b?.c ?? (new A().x === 1 && 2n ** 3n === 8n && Object.keys(rest).length === 1 &&
      [1, [2]].flat().at(-1) === 2 && /(?<y>[0-9]{4})/u.exec('in 2020').groups.y === '2020')
  }`
  t.same(await filter(modern, [{ a: 1, z: 1 }]), [true])
})

t.test('numbers are doubles, other JSON is unchanged', async (t) => {
  const [rows] = await shared.map({ ...filterOf('function (doc) { emit(doc.n, doc.s) }') }, [
    '{"n":[9007199254740993,1e400,-0],"s":"\\u0000 \\ud800 ü 漢 😀"}',
  ])
  t.equal(rows, '[[[9007199254740992,null,0],"\\u0000 \\ud800 ü 漢 😀"]]')
})
