/** From a member of a design document to a function; protocol.md 1.2, 5.6, 9.2. */
import t from 'tap'
import { filter, filterOf, functionAt, mapOf, reduceOf, shared, validatorOf } from './functions.ts'

t.test('every way to write a function down', async (t) => {
  const texts = [
    'function (doc) { return true }',
    'function(doc){return true};',
    'function named(doc) { return true }',
    ' \n\t function (doc) { return true } ; \n ',
    '// a comment\nfunction (doc) { return true }',
    '/* a comment */ function (doc) { return true } // another',
    'function (doc) { return true }; // a comment after the end',
    '(function (doc) { return true })',
    '(doc) => true',
    'doc => { return true };',
    '(function () { var seen = 1; return function (doc) { return seen } })()',
    'var helper = 1; (function (doc) { return helper })',
  ]
  for (const text of texts) t.same(await filter(text, [{}]), [true], text)
})

t.test('what is no function is a compilation error', async (t) => {
  const plain = (text: unknown, reason: RegExp) =>
    t.rejects(shared.compile(filterOf(text)), { code: 'compilation_error', reason }, String(text))
  await plain('function (', /^Compilation of the function filters\.f failed: SyntaxError: /)
  await plain('function () { return } }', /SyntaxError/)
  await plain('5', /Expression does not eval to a function\. \(5\)$/)
  await plain('', /SyntaxError/)
  await plain('absent.member', /ReferenceError: /)
  await plain('(function () { throw "at once" })()', /failed: at once \(/)
  for (const value of [5, null, {}, ['function () {}'], true]) await plain(value, /It is not a string\.$/)
  await plain(`5 ${'// long '.repeat(100_000)}`, /^.{1,1200}$/s)
})

t.test('views are told of in the words of CouchDB', async (t) => {
  await t.rejects(shared.compile(mapOf('function (')), {
    code: 'compilation_error',
    reason: /^Compilation of the map function in the 'v' view failed: SyntaxError/,
  })
  await t.rejects(shared.compile(reduceOf('function (')), {
    code: 'compilation_error',
    reason: /^Compilation of the reduce function in the 'v' view failed: SyntaxError/,
  })
  await t.rejects(shared.compile(validatorOf('function (')), {
    code: 'compilation_error',
    reason: /^Compilation of the function validate_doc_update failed: SyntaxError/,
  })
})

t.test('a member that is not there is not found', async (t) => {
  const at = (...path: string[]) => shared.compile({ ...filterOf('function () {}'), path })
  await t.rejects(at('filters', 'g'), { code: 'not_found', reason: 'missing json key: g' })
  await t.rejects(at('views', 'v', 'map'), { code: 'not_found', reason: 'missing json key: views' })
  await t.rejects(at('filters', 'toString'), { code: 'not_found', reason: 'missing json key: toString' })
  await t.rejects(at('filters', 'f', 'x'), { code: 'not_found', reason: 'json_mismatch' })
})

t.test('compiling runs nothing of the function', async (t) => {
  await shared.compile(filterOf('function () { for (;;); }'))
  t.pass('at once')
})

t.test('a member of any name is found', async (t) => {
  for (const name of ['__proto__', 'constructor', 'a/b', 'ü', '']) {
    const source = `{"filters":{${JSON.stringify(name)}:"function () { return true }"}}`
    const fn = { ...functionAt(['filters', name], ''), source }
    t.same(await shared.filter(fn, ['{}'], '{}'), [true], name)
  }
})
