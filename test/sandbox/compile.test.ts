/** Compiling functions of design documents, and their CommonJS modules; protocol.md 1.2, 5.6, 9.2. */
import t, { type Test } from 'tap'
import { filter, filterOf, functionAt, shared } from './functions.ts'

t.test('a function can be written in every usual way', async (t) => {
  const texts = [
    'function (doc) { return true }',
    'function(doc){return true};',
    'function named(doc) { return true } named',
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

t.test('anything but a function is a compilation error', async (t) => {
  const plain = (text: unknown, reason: RegExp) =>
    t.rejects(shared.compile(filterOf(text)), { code: 'compilation_error', reason }, String(text))
  await plain('function (', /^SyntaxError: /)
  await plain('function () { return } }', /SyntaxError/)
  await plain('5', /Expression does not eval to a function\. \(5\)$/)
  await plain(' ', /Expression does not eval to a function\. \( \)$/)
  await plain('absent.member', /ReferenceError: /)
  await plain('(function () { throw "at once" })()', /^at once \(/)
  for (const value of [5, null, {}, ['function () {}'], true]) await plain(value, /It is not a string\.$/)
  await plain(`5 ${'// long '.repeat(100_000)}`, /^.{1,1200}$/s)
})

t.test('a missing member is not_found', async (t) => {
  const at = (...path: string[]) => shared.compile({ ...filterOf('function () {}'), path })
  await t.rejects(at('filters', 'g'), { code: 'not_found', reason: 'missing json key: g' })
  await t.rejects(at('views', 'v', 'map'), { code: 'not_found', reason: 'missing json key: views' })
  await t.rejects(at('filters', 'toString'), { code: 'not_found', reason: 'missing json key: toString' })
  await t.rejects(at('filters', 'f', 'x'), { code: 'not_found', reason: 'json_mismatch' })
  const reason = 'missing filters function f on design doc _design/x'
  await t.rejects(shared.compile(filterOf('')), { code: 'not_found', reason })
})

t.test('compiling does not run the function', async (t) => {
  await shared.compile(filterOf('function () { for (;;); }'))
  t.pass('at once')
})

t.test('a member can have any name', async (t) => {
  for (const name of ['__proto__', 'constructor', 'a/b', 'ü', '']) {
    const source = `{"filters":{${JSON.stringify(name)}:"function () { return true }"}}`
    const fn = { ...functionAt(['filters', name], ''), source }
    t.same(await shared.filter(fn, ['{}'], '{}'), [true], name)
  }
})

async function moduleValue(expression: string, lib: Record<string, unknown>): Promise<unknown> {
  const fn = filterOf(`function (doc) { emit(${expression}) }`, {
    lib,
    views: { lib: { v: 'exports.v = 1' } },
  })
  const [rows = ''] = await shared.map(fn, ['{}'])
  return JSON.parse(rows)[0]?.[0]
}

const fails = (t: Test, expression: string, lib: Record<string, unknown>, reason: RegExp) =>
  t.rejects(shared.filter(filterOf(`function () { ${expression} }`, { lib }), ['{}'], '{}'), {
    code: 'function_error',
    reason,
  })

t.test('modules have exports, module.exports and views/lib', async (t) => {
  const lib = {
    a: 'exports.a = 1',
    b: 'module.exports = function () { return 2 }',
    c: 'exports.id = module.id // c',
  }
  t.equal(await moduleValue(`require('lib/a').a`, lib), 1)
  t.equal(await moduleValue(`require('lib/b')()`, lib), 2)
  t.equal(await moduleValue(`require('views/lib/v').v`, lib), 1)
  t.equal(await moduleValue(`require('/lib/c').id`, lib), 'lib/c')
})

t.test('paths are relative to the folder of the module', async (t) => {
  const lib = {
    a: `exports.a = require('./b').b + require('./sub/c').c`,
    b: 'exports.b = 1',
    sub: {
      c: `exports.c = require('../b').b + require('./../../lib/sub/d').d + require('lib/b').b`,
      d: 'exports.d = 5',
    },
  }
  t.equal(await moduleValue(`require('lib/a').a`, lib), 8)
})

t.test('a module runs once, and modules can require each other', async (t) => {
  const lib = {
    once: 'exports.count = (globalThis.count = (globalThis.count || 0) + 1)',
    a: `exports.early = 1; exports.b = require('./b').seen`,
    b: `exports.seen = require('./a').early`,
  }
  t.equal(await moduleValue(`require('lib/once').count + require('lib/once').count`, lib), 2)
  t.equal(await moduleValue(`require('lib/a').b`, lib), 1)
})

t.test('a module that cannot be required is an error', async (t) => {
  await fails(
    t,
    `require('lib/absent')`,
    {},
    /invalid_require_path: lib\/absent is not in the design document/,
  )
  await fails(t, `require('lib/folder')`, { folder: {} }, /lib\/folder is not a string/)
  await fails(t, `require('../../x')`, {}, /has no parent/)
  await fails(
    t,
    `require('lib/bad')`,
    { bad: 'this is no program' },
    /Module require\('lib\/bad'\) raised error SyntaxError/,
  )
  await fails(t, `require('lib/throws')`, { throws: 'throw "no"' }, /raised error no/)
  await fails(t, `require('toString')`, {}, /toString is not in the design document/)
})

t.test('a function can require modules before it is called', async (t) => {
  const fn = filterOf(`(function () { var a = require('lib/a'); return function () { return a.a } })()`, {
    lib: { a: 'exports.a = 1' },
  })
  t.same(await shared.filter(fn, ['{}'], '{}'), [true])
  const failing = filterOf(`(function () { require('lib/a'); return function () {} })()`)
  await t.rejects(shared.compile(failing), {
    code: 'compilation_error',
    reason: /lib\/a is not in the design document/,
  })
})
