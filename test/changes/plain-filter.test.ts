import fc from 'fast-check'
import t from 'tap'
import { type PlainDoc, plainFilter } from '../../src/changes/plain-filter.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'

function doc(_id: string, isDeleted = false): PlainDoc {
  return { _id, _rev: '1-a', _deleted: isDeleted || undefined }
}

function passes(text: string, ...docs: PlainDoc[]): boolean[] | null {
  const filter = plainFilter(text)
  return filter && docs.map(filter)
}

const NOTE = doc('note:1')
const FILE = doc('file:1')
const GONE = doc('xfile:2', true)

t.test('filters as people write them', async (t) => {
  const cases: [text: string, expected: [note: boolean, file: boolean, gone: boolean]][] = [
    ["function(doc) { return doc._id.indexOf('file:') === -1 }", [true, false, false]],
    ['function sync (doc, req) {\n  return doc._id.indexOf("file:") == -1;\n}', [true, false, false]],
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
  ]
  for (const [text, expected] of cases) t.same(passes(text, NOTE, FILE, GONE), expected, text)
})

t.test('whatever else there is runs as the program that it is', async (t) => {
  const texts = [
    '',
    'doc',
    'function(doc) { return\n doc._id.length }',
    "function(doc) { return doc.type === 'note' }",
    'function(doc, req) { return doc._id === req.query.id }',
    "function(doc) { return doc['_id'] === 'a' }",
    'function(doc) { for (;;) {} }',
    'function(doc) { return doc._id.match(/x/) }',
    'function(doc) { return /x/.test(doc._id) }',
    'function(doc) { return doc._id.toLowerCase() }',
    'function(doc) { return doc._id.constructor }',
    'function(doc) { return doc._id.indexOf(doc._rev) }',
    'function(doc) { return doc._deleted.length }',
    'function(doc) { return (doc._id || doc._rev).length }',
    'function(doc) { return doc._id = 1 }',
    'function(doc) { return doc._id - 1 }',
    'function(doc) { return - -1 }',
    'function(doc) { return --1 }',
    'function(doc) { // true\n return true }',
    'function(doc) { /* */ return true }',
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
    'function(doc) { if (doc._deleted) return 1; else return 2 }',
    `function(doc) { return doc._id === '${'x'.repeat(2000)}' }`,
  ]
  for (const text of texts) t.equal(plainFilter(text), null, text.slice(0, 80))
})

t.test('it says what the sandbox says', async () => {
  const text = fc.oneof(
    fc.constantFrom('file:', 'note:', 'f', '', "it's", 'ö😀', '10'),
    fc.string({ maxLength: 4 }),
  )
  const quoted = text
    .filter((one) => !/[\\\r\n\u2028\u2029]/.test(one))
    .map((one) => `'${one.replaceAll("'", "\\'")}'`)
  const number = fc.integer({ min: -3, max: 12 }).map(String)
  const literal = fc.oneof(quoted, number, fc.constantFrom('true', 'false'))
  const searches = fc.constantFrom('indexOf', 'lastIndexOf', 'includes', 'startsWith', 'endsWith')
  const cuts = fc.constantFrom('slice', 'substring', 'charAt')
  const member = fc.constantFrom('doc._id', 'doc._rev')
  const textual = fc.oneof(
    member,
    fc.tuple(member, cuts, number, number).map(([of, cut, a, b]) => `${of}.${cut}(${a}, ${b})`),
    fc.tuple(member, cuts, literal).map(([of, cut, a]) => `${of}.${cut}(${a})`),
  )
  const { expression } = fc.letrec<{ expression: string }>((tie) => ({
    expression: fc.oneof(
      { maxDepth: 4 },
      literal,
      fc.constant('doc._deleted'),
      textual,
      fc.tuple(textual, searches, literal).map(([of, search, arg]) => `${of}.${search}(${arg})`),
      textual.map((of) => `${of}.length`),
      tie('expression').map((inner) => `!${inner}`),
      tie('expression').map((inner) => `(${inner})`),
      fc
        .tuple(
          tie('expression'),
          fc.constantFrom('===', '!==', '==', '!=', '<', '>', '<=', '>=', '&&', '||'),
          tie('expression'),
        )
        .map(([a, operator, b]) => `${a} ${operator} ${b}`),
    ),
  }))
  const body = fc.oneof(
    expression.map((one) => `(doc) => ${one}`),
    expression.map((one) => `function (doc, req) { return ${one}; }`),
    fc
      .tuple(expression, expression, expression)
      .map(([a, b, c]) => `function sync(doc) {\n  if (${a}) return ${b}\n  return ${c}\n}`),
  )
  const docs = fc.array(fc.record({ id: text, isDeleted: fc.boolean() }), { minLength: 1, maxLength: 4 })
  const sandbox = localSandbox()
  let rev = 0
  let plain = 0
  await fc.assert(
    fc.asyncProperty(body, docs, async (body, docs) => {
      const seen = docs.map(({ id, isDeleted }) => doc(`${id}:1`, isDeleted))
      const told = passes(body, ...seen)
      if (told === null) return true
      plain += 1
      const source = JSON.stringify({ filters: { f: body } })
      const fn = { database: 1, ddoc: '_design/d', rev: String(rev++), path: ['filters', 'f'], source }
      const said = await sandbox.filter(
        fn,
        seen.map((one) => JSON.stringify(one)),
        '{}',
      )
      return JSON.stringify(said) === JSON.stringify(told)
    }),
    { numRuns: 150 },
  )
  t.ok(plain > 130, `${plain} of 150 were plain`)
})
