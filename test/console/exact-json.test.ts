import fc from 'fast-check'
import t from 'tap'
import {
  findFault,
  findObjectFault,
  formatJson,
  membersOf,
  placeOf,
  repeatedNames,
} from '../../console/src/parts/json-editor/exact-json.ts'

const EXACT = '{"big":9007199254740993,"huge":1e400,"one":1.0,"minus":-0,"b":1,"a":2,"a":3,"u":"\\u00e9\\/"}'

const FORMATTED = `{
  "a": [],
  "b": {},
  "c": [
    1,
    {
      "d": 1e400
    }
  ]
}`

/** A text of JSON without the white space between its tokens. */
function withoutSpace(text: string): string {
  return text.replace(/("(?:\\.|[^"\\])*")|\s+/g, '$1')
}

t.test('a text that is formatted and made compact again is what it was', async (t) => {
  t.equal(withoutSpace(formatJson(EXACT)), EXACT)
  t.equal(formatJson('{"a":[],"b":{},"c":[1,{"d":1e400}]}'), FORMATTED)
  fc.assert(
    fc.property(fc.json(), (text) => withoutSpace(formatJson(text)) === withoutSpace(text)),
    { numRuns: 300 },
  )
})

t.test('a text has a fault when JSON.parse refuses it, and only then', async (t) => {
  const piece = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    ':',
    ',',
    '"a"',
    '1',
    '-',
    '.5',
    '1e',
    'true',
    'nul',
    ' ',
    '\n',
    '"\\x"',
  )
  const texts = fc.array(piece, { maxLength: 9 }).map((parts) => parts.join(''))
  fc.assert(
    fc.property(texts, (text) => (findFault(text) === null) === isJson(text)),
    { numRuns: 5000 },
  )
  t.equal(findObjectFault('[1]')?.problem, 'no object')
  t.equal(findObjectFault('{}'), null)
})

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

t.test('a fault says what is wrong, and where', async (t) => {
  const faults: readonly (readonly [text: string, problem: string, at: number, found: string])[] = [
    ['', 'value', 0, ''],
    ['{"a" 1}', 'colon', 5, '1'],
    ['{"a":1 "b":2}', 'comma or brace', 7, '"'],
    ['[1 2]', 'comma or bracket', 3, '2'],
    ['{"a":1,}', 'trailing comma', 6, ','],
    ['[1,]', 'trailing comma', 2, ','],
    ['{a:1}', 'name or end', 1, 'a'],
    ["{'a':1}", 'name or end', 1, "'"],
    ['{"a":undefined}', 'word', 5, 'undefined'],
    ['{"a":01}', 'number', 5, '0'],
    ['{"a":+1}', 'number', 5, '+'],
    ['{"a":"x\ny"}', 'unclosed string', 5, '"'],
    ['{"a":"\t"}', 'control character', 6, '\t'],
    ['{"a":"\\q"}', 'escape', 6, '\\'],
    ['{} {}', 'nothing more', 3, '{'],
    ['{"a":[1}', 'comma or bracket', 7, '}'],
    ['{"a":', 'value', 5, ''],
    [`${'['.repeat(600)}`, 'too deep', 513, '['],
  ]
  for (const [text, problem, at, found] of faults)
    t.match(findFault(text), { problem, at, found }, text.slice(0, 20))
  t.same(placeOf('{\n  "a": 1,\n}', 10), { line: 2, column: 9 })
  t.same(placeOf('{\n\n}', 3), { line: 3, column: 1 })
})

t.test('the members of an object are found with their texts', async (t) => {
  const members = membersOf(' {"_id": "x" , "n": 1.0, "o": {"_rev": [1]}, "n": [ 2 ]}')
  const text = ' {"_id": "x" , "n": 1.0, "o": {"_rev": [1]}, "n": [ 2 ]}'
  t.same(
    members.map(({ name, valueFrom, to }) => [name, text.slice(valueFrom, to)]),
    [
      ['_id', '"x"'],
      ['n', '1.0'],
      ['o', '{"_rev": [1]}'],
      ['n', '[ 2 ]'],
    ],
  )
  t.throws(() => membersOf('[]'), SyntaxError)
  t.same(repeatedNames('{"a":{"b":1,"b":2},"c":[{"b":1}],"\\u0061":1}'), [
    { name: 'b', at: 12 },
    { name: 'a', at: 33 },
  ])
})

t.test('a large document is formatted without a long pause', async (t) => {
  const text = JSON.stringify(
    Object.fromEntries(Array.from({ length: 100_000 }, (_, n) => [`k${n}`, ['x'.repeat(20)]])),
  )
  t.equal(withoutSpace(formatJson(text)), text)
  t.equal(findFault(`"${'x'.repeat(8_000_000)}"`), null)
})
