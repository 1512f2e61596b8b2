import fc from 'fast-check'
import t from 'tap'
import { plainFilter } from '../../src/changes/plain-filter.ts'
import type { PlainDoc } from '../../src/changes/plain-tokens.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'

function doc(_id: string, isDeleted = false): PlainDoc {
  return { _id, _rev: '1-a', _deleted: isDeleted || undefined }
}

function passes(text: string, ...docs: PlainDoc[]): boolean[] | null {
  const filter = plainFilter(text)
  return filter && docs.map(filter)
}

/** The number of runs. Set PLAIN_FILTER_RUNS to a higher number to search for errors. */
const RUNS = Number(process.env.PLAIN_FILTER_RUNS ?? 60)

const NOTE = doc('note:1')
const FILE = doc('file:1')
const GONE = doc('xfile:2', true)

t.test('typical filters pass the right documents', async (t) => {
  const cases: [text: string, expected: [note: boolean, file: boolean, gone: boolean]][] = [
    ["function(doc) { return doc._id.indexOf('file:') === -1 }", [true, false, false]],
    ['function (doc, req) {\n  return doc._id.indexOf("file:") == -1;\n}', [true, false, false]],
    ["(doc) => !doc._id.includes('file:')", [true, false, false]],
    ["doc => doc._id.startsWith('file:') === false;", [true, false, true]],
    [
      "(doc, req) => { if (doc._deleted) return true; return doc._id.slice(0, 5) !== 'file:' }",
      [true, false, true],
    ],
    [
      "function (doc) {\n  if (doc._deleted) return false\n  if (doc._id.substring(0, 5) === 'note:') { return true }\n  return false\n}",
      [true, false, false],
    ],
    ["function(doc){if(doc._id.indexOf('file:')!==0){return true;}}", [true, false, true]],
    ["(doc) => doc._id.charAt(0) === 'n' || doc._deleted && doc._id.length > 3", [true, false, true]],
    [
      "(doc) => (doc._id).lastIndexOf('e') < 4 && doc._id > 'f' && doc._rev.endsWith('a')",
      [true, true, false],
    ],
    ['d => { }', [false, false, false]],
    ['d => true', [true, true, true]],
    ['d => 0', [false, false, false]],
    ["d => 'a' < d._id && 1 < 2 === true", [true, true, true]],
    ["_ => _._id === 'it\\'s' || _._id === \"file:1\"", [false, true, false]],
    [
      "(doc) => (doc._id || doc._rev).length > 6 ? doc._id.substr(-2, 1) === ':' : false",
      [false, false, true],
    ],
    [
      "function (doc, req) {\n  'use strict';\n  return doc._id.search\n}".replace('search', 'length'),
      [true, true, true],
    ],
    ['doc => doc._deleted === undefined && doc._deleted == null', [true, true, false]],
    ['doc => doc._id.match(/:/) !== null ? doc._id.match(/x/) : null', [false, false, true]],
  ]
  for (const [text, expected] of cases) t.same(passes(text, NOTE, FILE, GONE), expected, text)
})

/** Different spellings of the mobile filter. */
const SPELLINGS = [
  "function(doc, req) { return doc._id.indexOf('file:') === -1 }",
  'function(doc, req) { return doc._id.indexOf("file:") === -1; }',
  "function(doc) { return doc._id.indexOf('file:') == -1 }",
  "function(doc) { return doc._id.indexOf('file:') < 0 }",
  "function(doc) { return !(doc._id.indexOf('file:') !== -1) }",
  "function(doc) { return !(doc._id.indexOf('file:') >= 0) }",
  "function(doc) { return !(doc._id.indexOf('file:') > -1) }",
  "function(doc) { return !doc._id.includes('file:') }",
  "function(doc) { return doc._id.includes('file:') === false }",
  'function(doc) { return !/file:/.test(doc._id) }',
  'function(doc) { return !/file\\:/.test(doc._id) }',
  'function(doc) { return /file:/.test(doc._id) === false }',
  'function(doc) { return !doc._id.match(/file:/) }',
  'function(doc) { return doc._id.match(/file:/) === null }',
  'function(doc) { return doc._id.match(/file:/) == null }',
  'function(doc) { return /file:/.exec(doc._id) === null }',
  "(doc) => doc._id.indexOf('file:') === -1",
  "(doc, req) => { return doc._id.indexOf('file:') === -1; };",
  "doc => !doc._id.includes('file:')",
  "function(doc) { if (doc._id.indexOf('file:') !== -1) return false; return true }",
  "function(doc) {\n  if (doc._id.indexOf('file:') !== -1) {\n    return false;\n  }\n  return true;\n}\n",
  "function(doc) { if (doc._id.indexOf('file:') === -1) { return true } else { return false } }",
  "function(doc)\n{\n  if (doc._id.indexOf('file:') >= 0)\n    return false\n  else\n    return true\n}",
  "function(doc) { if (doc._id.indexOf('file:') === -1) return true }",
  "function(doc) { return doc._id.indexOf('file:') === -1 ? true : false }",
  "function(doc) {\n  // no files on phones\n  return doc._id.indexOf('file:') === -1 /* none */\n}",
  "function (doc, req) {\r\n\t'use strict';\r\n\treturn doc._id.indexOf('file:') === -1;\r\n}",
]
/** Spellings that test the beginning of the id, so `xfile:2` is not a file. */
const BEGINNINGS = [
  "(doc) => !doc._id.startsWith('file:')",
  "(doc) => doc._id.indexOf('file:') !== 0",
  "(doc) => doc._id.slice(0, 5) !== 'file:'",
  "(doc) => doc._id.substr(0, 5) !== 'file:'",
  "(doc) => doc._id.substring(0, 5) !== 'file:'",
  "(doc) => doc._id.lastIndexOf('file:', 0) !== 0",
  '(doc) => !/^file:/.test(doc._id)',
  '(doc) => !doc._id.match(/^file:/)',
]

t.test('all spellings of the mobile filter are plain', async (t) => {
  for (const text of SPELLINGS) t.same(passes(text, NOTE, FILE, GONE), [true, false, false], text)
  for (const text of BEGINNINGS) t.same(passes(text, NOTE, FILE, GONE), [true, false, true], text)
})

t.test('any other function is not plain', async (t) => {
  const texts = [
    '',
    'doc',
    // A declaration has no value, and the value of a program is that of its last statement.
    'function sync(doc) { return true }',
    'function\n(doc) { return true }',
    'function // all\n(doc) { return true }',
    'function(doc) { return true } function(doc) { return false }',
    'function(doc) { return true }; doc => false',
    'function all(doc) { return true } all',
    'function(doc) { return true } var all',
    'function(doc) { return\n doc._id.length }',
    "function(doc) { return doc.type === 'note' }",
    'function(doc, req) { return doc._id === req.query.id }',
    "function(doc) { return doc['_id'] === 'a' }",
    'function(doc) { for (;;) {} }',
    'function(doc) { return doc._id.toLowerCase() }',
    'function(doc) { return doc._id.constructor }',
    'function(doc) { return doc._id.indexOf(doc._rev) }',
    'function(doc) { return doc._deleted.length }',
    'function(doc) { return doc._id = 1 }',
    'function(doc) { return doc._id - 1 }',
    'function(doc) { return - -1 }',
    'function(doc) { return --1 }',
    'function(doc) { return doc._id <!--x\n}',
    'function(doc) { return 010 }',
    'function(doc) { return 1.5 }',
    'function(doc) { return 0x10 }',
    'function(doc) { return 1e3 }',
    "function(doc) { return '\\x41' }",
    'function(doc) { return `a` }',
    'function(doc, doc) { return true }',
    'function(return) { return true }',
    'function(eval) { return true }',
    'function({_id}) { return true }',
    'function(...doc) { return true }',
    'function(doc = 1) { return true }',
    'async function(doc) { return true }',
    'function*(doc) { return true }',
    '(doc)\n=> true',
    'doc => true, 1',
    'function(doc) { return true } + 1',
    'function(doc) { return true }()',
    'function(doc) { return true',
    'function(doc) { return true true }',
    'function(doc) { return true\n+ 1 }',
    'function(doc) { return doc._id\n.length > 3 instanceof 1 }',
    'function(doc) { return true\ninstanceof doc }',
    'function(doc) { return document._id }',
    "function(doc) { return doc._id.indexOf('a', 1, 2) }",
    'function(doc) { return doc._id.indexOf() }',
    // Strings that would be converted to numbers, or objects to strings.
    'doc => doc._id == 1',
    'doc => doc._id < 1',
    "doc => doc._id.length == '3'",
    "doc => doc._deleted == 'true'",
    'doc => (doc._id || 1) == 1',
    "doc => doc._id.match(/a/) == 'a'",
    'doc => doc._id.match(/a/) < 1',
    'doc => null < 1',
    'doc => doc._id.indexOf(1)',
    "doc => doc._id.slice('1')",
    "doc => doc._id.indexOf('a', '1')",
    // Patterns with state, or with more than literal characters.
    'doc => /a/g.test(doc._id)',
    'doc => /a/y.test(doc._id)',
    'doc => /a/i.test(doc._id)',
    'doc => /a.b/.test(doc._id)',
    'doc => /a+/.test(doc._id)',
    'doc => /(a|b)/.test(doc._id)',
    'doc => /[ab]/.test(doc._id)',
    'doc => /a$b/.test(doc._id)',
    'doc => /a^/.test(doc._id)',
    'doc => /\\d/.test(doc._id)',
    'doc => /ä/.test(doc._id)',
    'doc => /(?:a+)+$/.test(doc._id)',
    'doc => /a/.test(doc._id.length)',
    'doc => /a/.test(doc)',
    'doc => /a/.source',
    'doc => /a/',
    "doc => doc._id.match('a')",
    'doc => doc._id.match(/a/).length',
    'doc => doc._id.search(/a/)',
    // Unterminated and HTML-like comments, and other meanings of the same characters.
    'doc => true /* ',
    'doc => true <!-- 1',
    'doc => true\n--> 1',
    'doc => doc?._id',
    'doc => doc._id ?? true',
    "doc => 'a\u0000b' === doc._id",
    "function(doc) { 'use strict' return true }",
    'function(doc) { if (doc._deleted) return 1 else return 2 }',
    'function(doc) { else return 2 }',
    'function(eval) { return true }',
    'function(doc, arguments) { return true }',
    'function(await) { return true }',
    'function(doc) { return this }',
    'function(doc) { return undefined._id }',
    `doc => ${'('.repeat(60)}true${')'.repeat(60)}`,
    `doc => ${'!'.repeat(60)}true`,
    `doc => ${'('.repeat(990)}true${')'.repeat(990)}`,
    `doc => { ${'if (true) '.repeat(60)} return true }`,
    `function(doc) { return doc._id === '${'x'.repeat(2000)}' }`,
  ]
  for (const text of texts) t.equal(plainFilter(text), null, text.slice(0, 80))
})

const text = fc.oneof(
  fc.constantFrom(
    'file:',
    'note:',
    'xfile:2',
    'f',
    '',
    "it's",
    'ö😀',
    '10',
    '\\',
    '/^$',
    'a\u0000',
    'e\u0301',
  ),
  fc.string({ maxLength: 4 }),
  fc.string({ maxLength: 3, unit: 'binary' }).filter((one) => one.isWellFormed()),
)
const plainText = text.filter((one) => !/[\p{Cc}\u2028\u2029]/u.test(one))
const quoted = fc.tuple(plainText, fc.constantFrom("'", '"')).map(([one, quote]) => {
  return quote + one.replaceAll('\\', '\\\\').replaceAll(quote, `\\${quote}`) + quote
})
const number = fc.integer({ min: -3, max: 12 }).map(String)
const pattern = fc
  .tuple(
    fc.constantFrom('', '^'),
    fc.constantFrom('file:', ':', 'x', 'f', 'a-b', '\\/', '\\.', '\\$', '\\\\', '\\^\\$', "it's", '_ 1'),
    fc.constantFrom('', '$'),
  )
  .map((parts) => `/${parts.join('')}/`)
const searches = fc.constantFrom('indexOf', 'lastIndexOf', 'includes', 'startsWith', 'endsWith')
const cuts = fc.constantFrom('slice', 'substring', 'substr', 'charAt')
const member = fc.constantFrom('doc._id', 'doc._rev')
const { textual } = fc.letrec<{ textual: string }>((tie) => ({
  textual: fc.oneof(
    { maxDepth: 2 },
    member,
    quoted,
    fc.tuple(tie('textual'), cuts, number, number).map(([of, cut, a, b]) => `${of}.${cut}(${a}, ${b})`),
    fc.tuple(tie('textual'), cuts, number).map(([of, cut, a]) => `${of}.${cut}(${a})`),
  ),
}))
const bare = fc.oneof(
  number,
  fc.constantFrom('true', 'false', 'doc._deleted', 'doc._deleted'),
  fc.tuple(textual, searches, quoted).map(([of, search, arg]) => `${of}.${search}(${arg})`),
  fc.tuple(textual, searches, quoted, number).map(([of, search, a, b]) => `${of}.${search}(${a}, ${b})`),
  textual.map((of) => `${of}.length`),
  fc.tuple(pattern, textual).map(([one, of]) => `${one}.test(${of})`),
)
const matched = fc.tuple(pattern, textual).map(([one, of]) => `${of}.match(${one})`)
const exact = fc.constantFrom('===', '!==')
const coercing = fc.constantFrom('===', '!==', '==', '!=', '<', '>', '<=', '>=')
const { expression } = fc.letrec<{ expression: string }>((tie) => ({
  expression: fc.oneof(
    { maxDepth: 4 },
    bare,
    textual,
    matched,
    fc.tuple(bare, coercing, bare).map((parts) => parts.join(' ')),
    fc.tuple(textual, coercing, textual).map((parts) => parts.join(' ')),
    fc
      .tuple(matched, fc.constantFrom('===', '!==', '==', '!='), fc.constantFrom('null', 'undefined'))
      .map((parts) => parts.join('')),
    tie('expression').map((inner) => `!${inner}`),
    tie('expression').map((inner) => `(${inner})`),
    fc
      .tuple(tie('expression'), fc.constantFrom('&&', '||'), tie('expression'))
      .map((parts) => parts.join(' ')),
    fc.tuple(tie('expression'), exact, tie('expression')).map((parts) => parts.join('')),
    fc.tuple(tie('expression'), tie('expression'), tie('expression')).map(([a, b, c]) => `(${a}?${b}:${c})`),
  ),
}))
const body = fc.oneof(
  expression.map((one) => `(doc) => ${one}`),
  expression.map((one) => `function (doc, req) { return ${one}; }`),
  fc
    .tuple(expression, expression, expression)
    .map(([a, b, c]) => `function (doc) {\n  if (${a}) return ${b}\n  return ${c}\n}`),
  fc
    .tuple(expression, expression, expression, expression)
    .map(([a, b, c, d]) => `doc => {if(${a}){if(${b})return ${c};}else return ${d}\nreturn 'x'}`),
)
const docs = fc.array(fc.record({ id: text, isDeleted: fc.boolean() }), { minLength: 1, maxLength: 4 })

/** Pieces of text that a mutation can insert. */
const SCRAPS = [
  ...'! - + * / % ~ ^ & | < > = ? : . , ; ( ) { } [ ] ` \' " \\ # @ $ _ \n \r \t \u2028 \u00a0 \ufeff \u180e \u200c'.split(
    ' ',
  ),
  ...'<!-- --> // /* */ -- ++ ** ?? ?. ... => == === !== != >= <= && || && << >>> 0x1 1e1 1n .5 01'.split(
    ' ',
  ),
  ...'in of instanceof typeof void delete new this null undefined NaN true false let var const yield'.split(
    ' ',
  ),
  ...'return if else for while do break a: async await arguments eval doc req _id _deleted .length'.split(
    ' ',
  ),
  ...[
    'function',
    'function\n(doc)',
    'function k(doc) {}',
    '; function (doc) { return 1 }',
    '; 5',
    '; doc => 1',
    ' k',
  ],
  ..."/x/ /x/g /x/y /x/i /[/]/ /(a|b)+$/ [0] ['_id'] .match .test .constructor 'use\u0020strict'; \\u0064oc \u0000".split(
    ' ',
  ),
]
const WORDS = /\w+|\s+|[^\w\s]/g

/** A program in which some words are removed, doubled or replaced, or text is inserted between them. */
const mutant = fc
  .tuple(
    fc.oneof(body, fc.constantFrom(...SPELLINGS, ...BEGINNINGS)),
    fc.array(
      fc.record({
        at: fc.nat(),
        how: fc.constantFrom('drop', 'double', 'put', 'change'),
        scrap: fc.constantFrom(...SCRAPS),
      }),
      { minLength: 1, maxLength: 3 },
    ),
  )
  .map(([text, edits]) => edits.reduce(mutate, text))

function mutate(text: string, { at, how, scrap }: { at: number; how: string; scrap: string }): string {
  const words = text.match(WORDS) ?? []
  const place = at % (words.length + 1)
  const word = words[place] ?? ''
  const replaced = { drop: [], double: [word, word], put: [scrap, word], change: [scrap] }[how] ?? []
  return words.toSpliced(place, 1, ...replaced).join('')
}

const sandbox = localSandbox()
let rev = 0

/** @returns false if the text is not plain @throws if the sandbox gives another result, or none */
async function agree(text: string, docs: readonly { id: string; isDeleted: boolean }[]): Promise<boolean> {
  const inputs = docs.map(({ id, isDeleted }) => doc(id, isDeleted))
  const result = passes(text, ...inputs)
  if (result === null) return false
  const source = JSON.stringify({ filters: { f: text } })
  const fn = { database: 1, ddoc: '_design/d', rev: String(rev++), path: ['filters', 'f'], source }
  const sandboxResult = await sandbox.filter(
    fn,
    inputs.map((one) => JSON.stringify(one)),
    '{}',
  )
  if (JSON.stringify(sandboxResult) !== JSON.stringify(result)) {
    throw new Error(`${result}, but ${sandboxResult} in the sandbox: ${text}`)
  }
  return true
}

t.test('a plain filter gives the same result as the sandbox', async (t) => {
  let plain = 0
  await fc.assert(
    fc.asyncProperty(body, docs, async (body, docs) => {
      if (await agree(body, docs)) plain += 1
    }),
    { numRuns: RUNS },
  )
  t.ok(plain > RUNS * 0.8, `${plain} of ${RUNS} were plain`)
})

t.test('mutants that are taken for plain give the same result as the sandbox', async (t) => {
  let plain = 0
  await fc.assert(
    fc.asyncProperty(mutant, docs, async (text, docs) => {
      if (await agree(text, docs)) plain += 1
    }),
    { numRuns: RUNS * 10 },
  )
  t.ok(plain > RUNS / 2, `${plain} of ${RUNS * 10} were plain`)
})

t.test('white space and comments of every kind give the same result as the sandbox', async () => {
  const spaces = [
    '\t',
    '\v',
    '\f',
    '\u00a0',
    '\ufeff',
    '\u1680',
    '\u2003',
    '\u202f',
    '\u205f',
    '\u3000',
    '\u2028',
    '\u2029',
    '\r\n',
    '\r',
    '/**/',
    '/*\n*/',
    '/***/',
    '// x\n',
    '//\u2028',
    '/* // */',
    '// /*\n',
    "/*\u2029 ' */",
  ]
  for (const [i, space] of spaces.entries()) {
    const text = SPELLINGS[i % SPELLINGS.length] ?? ''
    const words = text.match(WORDS) ?? []
    await agree(space + text.replaceAll(' ', space) + space, [{ id: 'file:1', isDeleted: false }])
    await agree(words.toSpliced((i * 7) % words.length, 0, space).join(''), [
      { id: 'note:1', isDeleted: true },
    ])
  }
})
