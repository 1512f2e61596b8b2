/** Which function a program has: the value of its last statement; docs/compatibility.md, "Functions". */
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { functionAt, map, mapOf, reduceOf, shared, validatorOf } from './functions.ts'

const RUNS = Number(process.env.PROGRAM_RUNS ?? 150)

/** A function without a name that emits a number. `k` is a helper of some programs. */
const anonymous = (n: number | string) => `function (doc) { emit(${n}) }`

/** @param emitted what the function of the program emits; null: it has none */
async function counts(t: Test, text: string, emitted: unknown): Promise<void> {
  const name = JSON.stringify(text).slice(0, 200)
  if (emitted !== null) t.same(await map(text, [{ _id: 'x' }]), [[[emitted, null]]], name)
  else await t.rejects(shared.compile(mapOf(text)), { code: 'compilation_error' }, name)
}

t.test('the last value of a program is its function', async (t) => {
  const helper = 'function k(doc) { return doc._id }'
  for (const [text, emitted] of [
    [`${helper}\n${anonymous('k(doc)')}`, 'x'],
    [`var T = 'note';\n${anonymous('T')}`, 'note'],
    [`'use strict';\n${anonymous('typeof undeclared')}`, 'undefined'],
    [`'use strict'; function (doc) { undeclared = 1; emit(1) }`, undefined],
    ['function map(doc) { emit(1) }; map', 1],
    [`${helper}\nfunction map(doc) { emit(k(doc)) }\nmap`, 'x'],
    [`${anonymous('k(doc)')}\n${helper}`, 'x'],
    [`let n = 4; const f = (doc) => { emit(n) }; f`, 4],
    [`\ufeff// !code lib/a.js\n// !json templates\n${anonymous(1)}`, 1],
    ['function need(x, m) {}\nfunction validate(n, o, u) {}', null],
    ['function map(doc) { emit(1) }', null],
    ['var map = function (doc) { emit(1) }', null],
    [`${anonymous(1)}; 'something else'`, null],
    ['', null],
    [' ', null],
  ] as const) {
    if (emitted === undefined) t.same(await map(text, [{}]), [[]], 'strict mode applies')
    else if (text === '')
      await t.rejects(shared.compile(mapOf('')), { code: 'not_found', reason: 'missing function' })
    else await counts(t, text, emitted)
  }
})

t.test(
  'a function without a name is an expression only where a program or a body lists its statements',
  async (t) => {
    const one = anonymous(1)
    for (const [text, emitted] of [
      [`{ ${one} }`, null],
      [`if (1) ${one}`, null],
      [`if (1) { ${one} }`, null],
      [`if (0); else ${one}`, null],
      [`label: ${one}`, null],
      [`for (; 0; ) ${one}`, null],
      [`do ${one} while (0)`, null],
      [`switch (1) { case 1: ${one} }`, null],
      [`try { ${one} } finally {}`, null],
      [`do {} while (0) ${one}`, 1],
      [`async ${one}`, null],
      ['function* (doc) { emit(1) }', null],
      ['function\n(doc) { emit(1) }', null],
      ['function // a comment\n(doc) { emit(1) }', null],
      ['function /* two\nlines */ (doc) { emit(1) }', null],
      ['function /* function */ /* ( */ (doc) { emit(1) }', 1],
      ['function /* function /* function */ (doc) { emit(1) }', 1],
      ['/* function /* */ function /*/ function */ (doc) { emit(1) }', 1],
      ['function\u00a0(doc) { emit(1) }', 1],
      [`var async; async\n${one}`, 1],
      [`function map(doc) { function () {} emit(2) } map`, 2],
      [`function map(doc) { if (1) { function () {} } emit(2) } map`, null],
      [`(doc) => { function () {} emit(2) }`, 2],
      [`class A { function () {} } ({ function () {}, get function () {} }); ${one}`, 1],
      [`${one}.bind(null)`, 1],
      [`${one}, 5`, null],
      [`5, ${one}`, 1],
      [`5 ${one}`, null],
      [`${one} 5`, null],
      [`${one} var x = function () {} var y`, null],
      [`var x = { a: function () {} b: 1 }; ${one}`, null],
      ['function (doc) { return function (doc) { emit(2) } }()', 2],
    ] as const)
      await counts(t, text, emitted)
  },
)

const SENTENCES = [
  'function (a) { return "}" }',
  '{ function (',
  '} function (',
  '/* function (',
  '// function (',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: part of a generated template
  '} ${function (a) {}}',
]

/** Statements without a value. Each ends itself, or is ended by `;` or a line break. */
const silent = fc.oneof(
  fc.constantFrom(
    'function k(doc) { return { a: [doc] } }',
    'function k() { return function (a) { return function (b) {} } }',
    '{ class K { static k(doc) { return "}" } get function() { return /[/}"]/ } } }',
    '// function (doc) { emit("comment") }\n',
    '/* function (doc) { emit("comment") }\n */',
    '<!-- function (\n',
    ';',
  ),
  fc
    .tuple(
      fc.constantFrom('var', 'let', 'const'),
      fc.constantFrom('k', 'é', '$', '\\u0061'),
      fc.oneof(
        fc.constantFrom(
          'function (a) { return a }',
          'function* (a) {}',
          'async function (a) {}',
          '(a) => ({ a })',
        ),
        fc.constantFrom(
          '/function (a) {[/"]/',
          '1 / 2 / 3',
          '{ function () {}, a: function () {} }',
          '[1, [2]]',
        ),
        fc.constantFrom(...SENTENCES).map((text) => JSON.stringify(text)),
        fc.constantFrom(...SENTENCES).map((text) => `\`\${1}😀${text}\${"}"}\``),
      ),
    )
    .map(([kind, name, value]) => `{ ${kind} ${name} = ${value} } var v = ${value};`),
)

/** Statements with a value that is no function. */
const loud = fc.constantFrom(
  '5',
  '"use strict"',
  'sum([1])',
  'if (1) { 5 }',
  'for (var i = 0; i < 2; i++) i',
  'null',
)

/** Statements whose value is a function that emits a number. */
const valued = (n: number) =>
  fc.constantFrom(
    anonymous(n),
    `function /* (( */ (doc, { a } = { a: ${n} }) { emit(a) }`,
    `(${anonymous(n)})`,
    `(doc) => { emit(${n}) }`,
    `doc => emit(${n})`,
    `0, ${anonymous(n)}`,
    `(function () { var n = ${n}; return function (doc) { emit(n) } })()`,
    `function f${n}(doc) { emit(${n}) } f${n}`,
    `var g${n} = ${anonymous(n)}; g${n}`,
    `if (1) { (${anonymous(n)}) }`,
  )

interface Statement {
  readonly text: string
  /** What the value of the statement emits; undefined: it has no value; null: its value is no function. */
  readonly emits: number | null | undefined
}

const statement: fc.Arbitrary<Statement> = fc.oneof(
  { weight: 3, arbitrary: silent.map((text) => ({ text, emits: undefined })) },
  { weight: 1, arbitrary: loud.map((text) => ({ text, emits: null })) },
  { weight: 3, arbitrary: fc.nat(99).chain((n) => valued(n).map((text) => ({ text, emits: n }))) },
)

const program = fc.tuple(
  fc.constantFrom('', '\ufeff', ' \n', "'use strict';\n", '#! a line\n', '/* a\n */ '),
  fc.array(fc.tuple(statement, fc.constantFrom(';', ';\n', '\n;', ' ; // end\n', ';/* */')), {
    minLength: 1,
    maxLength: 6,
  }),
)

t.test('generated programs have the function of their last value', async (t) => {
  const docs = ['{"_id":"x"}']
  let found = 0
  await fc.assert(
    fc.asyncProperty(program, async ([begin, list]) => {
      const text = begin + list.map(([{ text }, end]) => text + end).join('')
      const values = list.map(([{ emits }]) => emits).filter((emits) => emits !== undefined)
      // A directive is a statement with a value.
      const last = values.at(-1) ?? null
      const fn = mapOf(text)
      if (last === null) {
        const error = await shared.compile(fn).then(
          () => null,
          (thrown) => thrown,
        )
        if (error?.code !== 'compilation_error') throw new Error(`it has a function: ${text}`)
        return
      }
      found += 1
      const [rows] = await shared.map(fn, docs)
      if (rows !== `[[${last},null]]`) throw new Error(`${rows} in place of ${last}: ${text}`)
    }),
    { numRuns: RUNS },
  )
  t.ok(found > RUNS / 3, `${found} of ${RUNS} had a function`)
})

t.test('functions without a name need no semicolon', async (t) => {
  const rest = ['function k() {}', 'var x', 'let x = 1', 'class K {}', 'debugger', '{}']
  for (const after of rest) {
    await counts(t, `${anonymous(1)} ${after}`, 1)
    await counts(t, `${anonymous(1)} ${after}; ${anonymous(2)} var y`, 2)
  }
})

t.test('every function has its own globals', async (t) => {
  const views = {
    a: {
      map: `var shared = 'a'; implicit = 'a'; function k() { return 'a' }\nfunction (doc) { emit([shared, implicit, k()]) }`,
    },
    b: {
      map: `Object.prototype.left = Array.prototype.left = 1; emit.left = 1; JSON.stringify = null
      function k() { return 'b' } function (doc) { emit([typeof shared, typeof implicit, k()]) }`,
    },
    c: { map: `var emit = 5; ${anonymous('1')}` },
    d: {
      map: `function (doc) { emit([{}.left, [].left, doc.left, emit.left, typeof JSON.stringify, typeof k]) }`,
    },
    lib: { m: 'exports.isOne = function (list) { return list instanceof Array }' },
    e: { map: `var m = require('views/lib/m'); function (doc) { emit(m.isOne([])) }` },
  }
  const fn = functionAt(['views'], views)
  const [rows = ''] = await shared.mapViews(fn, ['{}'])
  t.same(JSON.parse(rows), [
    [[['a', 'a', 'a'], null]],
    [[['undefined', 'undefined', 'b'], null]],
    'TypeError: not a function',
    [[[null, null, null, null, 'function', 'undefined'], null]],
    [[true, null]],
  ])
})

t.test('a function that does not return its result is no function', async (t) => {
  const kinds = [
    'async (doc) => {}',
    '(async function (doc) {})',
    'async function map(doc) {} map',
    'function* map(doc) {} map',
    '(async function* () {})',
    '({ async m() {} }).m',
    '({ *m() {} }).m',
    'Object.getPrototypeOf(async function () {}).constructor("return 1")',
  ]
  for (const text of kinds) {
    for (const fn of [mapOf(text), reduceOf(text), validatorOf(text)]) {
      await t.rejects(
        shared.compile(fn),
        { code: 'compilation_error', reason: `Expression does not eval to a function. (${text})` },
        text,
      )
    }
  }
})

t.test('a promise or a generator is never a result', async (t) => {
  const reason = /must return its result, not a promise or a generator/
  const late = [
    'Promise.resolve()',
    '(async () => { throw { forbidden: 1 } })()',
    '(function* () {})()',
    '{ then() {} }',
  ]
  for (const value of late) {
    const text = `function () { return ${value} }`
    const [verdict] = await shared.validate(validatorOf(text), [
      { newDoc: '{}', oldDoc: 'null', userCtx: '{}', security: '{}' },
    ])
    t.match(verdict, { error: 'unknown_error', reason }, value)
    await t.rejects(shared.filter(functionAt(['filters', 'f'], text), ['{}'], '{}'), {
      code: 'function_error',
      reason,
    })
    t.same(await shared.map(mapOf(`function () { emit(1); return ${value} }`), ['{}']), ['[]'])
    const calls = [{ keys: 'null', values: '[]', rereduce: true }]
    t.same(await shared.reduce(reduceOf(text), calls), ['null'])
    for (const [kind, member] of [
      ['show', 'shows'],
      ['update', 'updates'],
      ['rewrite', 'rewrites'],
    ] as const) {
      const result = await shared.render(kind, functionAt([member, 'f'], text), ['{}', '{"method":"POST"}'])
      t.match(result, /^!.*must return its result/, `${kind} ${value}`)
    }
    const list = functionAt(['lists', 'f'], text)
    t.match(
      await shared.list(list, ['{}', '{}'], async () => 'null'),
      /^!.*must return its result/,
      `list ${value}`,
    )
  }
})

t.test('a bound function, which does not show its kind, is found out when it is called', async (t) => {
  const bound = validatorOf('(async function () { throw { forbidden: "no" } }).bind(null)')
  const call = { newDoc: '{}', oldDoc: 'null', userCtx: '{}', security: '{}' }
  t.match(await shared.validate(bound, [call]), [
    { error: 'unknown_error', reason: /must return its result/ },
  ])
})

t.test('an object with a method that is called next is a result', async (t) => {
  const calls = [{ keys: 'null', values: '[]', rereduce: true }]
  t.same(await shared.reduce(reduceOf('function () { return { next() {}, a: 1 } }'), calls), ['{"a":1}'])
})

t.test('a reduce function has no require', async (t) => {
  const calls = [{ keys: 'null', values: '[]', rereduce: true }]
  t.same(await shared.reduce(reduceOf('function () { return typeof require }'), calls), ['"undefined"'])
})

t.test('a promise within a result is no JSON value', async (t) => {
  const text =
    'function (doc) { return [{ _id: "a", v: Promise.resolve() }, { json: { v: Promise.resolve() } }] }'
  t.match(
    await shared.render('update', functionAt(['updates', 'f'], text), ['null', '{"method":"POST"}']),
    /^!.*a promise is no JSON value/,
  )
  t.same(await shared.map(mapOf('function () { emit(1, { a: Promise.resolve() }) }'), ['{}']), ['[]'])
})

t.test('a text of every kind is read within the limits of a call', async (t) => {
  const one = anonymous(1)
  const texts = {
    'a long line': `var s = "${'x'.repeat(2_000_000)}"; ${one}`,
    'a long comment': `/*${'*'.repeat(2_000_000)}*/ ${one}`,
    'many statements without a name': `${'function () {}\n'.repeat(20_000)}${one}`,
    'many of them on a line': `${'function () {} '.repeat(20_000)}${one}`,
    'many nested parentheses': `${'('.repeat(100_000)}${')'.repeat(100_000)}${one}`,
    'many nested brackets': `${'['.repeat(100_000)}${one}`,
    'many nested blocks': `${'{'.repeat(100_000)}${one}`,
    'many nested templates': ['`', '{'].join('$').repeat(100_000) + one,
    'many nested functions': `${'function f() {'.repeat(100_000)}${one}`,
    'many comments': `function ${'/* function */'.repeat(10_000)}(doc) { emit(1) }`,
    'many operators': `${'!'.repeat(500_000)}1; ${one}`,
    'many names': `${'a = '.repeat(300_000)}1; ${one}`,
    'a program without an end': `for (;;); ${one}`,
    'a program that fills the memory': `var a = []; for (;;) a.push(new Array(100000)); ${one}`,
    'a program that calls itself': `function r() { r() } r(); ${one}`,
    'a text that cannot be shown': 'throw { get message() { throw this } }',
    'a false syntax error':
      'throw Object.assign(new SyntaxError("function name expected"), { stack: "at a:1:1" })',
  }
  // On the thread of a test, whose stack is small, a function_error tells of its end.
  const expected = /^(?:compiled|compilation_error|function_timeout|function_memory|function_error)$/
  const sandbox = localSandbox({ timeoutMs: 1000 })
  for (const [name, text] of Object.entries(texts)) {
    const began = performance.now()
    const code = await sandbox.compile(mapOf(text)).then(
      () => 'compiled',
      (error) => error.code,
    )
    t.match(code, expected, name)
    t.comment(`${name}: ${code}, ${Math.round(performance.now() - began)} ms`)
  }
})
