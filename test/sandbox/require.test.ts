/** CommonJS modules in design documents. */
import t, { type Test } from 'tap'
import { filterOf, shared } from './functions.ts'

async function found(expression: string, lib: Record<string, unknown>): Promise<unknown> {
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

t.test('exports, module.exports, and views/lib', async (t) => {
  const lib = {
    a: 'exports.a = 1',
    b: 'module.exports = function () { return 2 }',
    c: 'exports.id = module.id // c',
  }
  t.equal(await found(`require('lib/a').a`, lib), 1)
  t.equal(await found(`require('lib/b')()`, lib), 2)
  t.equal(await found(`require('views/lib/v').v`, lib), 1)
  t.equal(await found(`require('/lib/c').id`, lib), 'lib/c')
})

t.test('relative to the folder of the module', async (t) => {
  const lib = {
    a: `exports.a = require('./b').b + require('./sub/c').c`,
    b: 'exports.b = 1',
    sub: {
      c: `exports.c = require('../b').b + require('./../../lib/sub/d').d + require('lib/b').b`,
      d: 'exports.d = 5',
    },
  }
  t.equal(await found(`require('lib/a').a`, lib), 8)
})

t.test('a module runs once, and modules may require each other', async (t) => {
  const lib = {
    once: 'exports.count = (globalThis.count = (globalThis.count || 0) + 1)',
    a: `exports.early = 1; exports.b = require('./b').seen`,
    b: `exports.seen = require('./a').early`,
  }
  t.equal(await found(`require('lib/once').count + require('lib/once').count`, lib), 2)
  t.equal(await found(`require('lib/a').b`, lib), 1)
})

t.test('what cannot be required is an error', async (t) => {
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

t.test('a function may require before it is called', async (t) => {
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
