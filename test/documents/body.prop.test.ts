import { deepEqual, equal, match } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { splitDocument } from '../../src/documents/body.ts'
import { DocumentScanner } from '../../src/documents/json-scanner.ts'
import { damaged, damages } from './damage.ts'

/** A JSON text as sent, and as it must be stored. */
interface Written {
  sent: string
  stored: string
}

const KEPT = /^_(?:access|replication_(?:id|state|state_time|state_reason|stats))$/

const space = fc.oneof(
  { weight: 6, arbitrary: fc.constant('') },
  fc.string({ unit: fc.constantFrom(' ', '\n', '\r', '\t'), maxLength: 3 }),
)
const digits = (minLength: number) =>
  fc.string({ unit: fc.constantFrom(...'0123456789'), minLength, maxLength: 19 })
const number = fc.oneof(
  fc.integer().map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((n) => JSON.stringify(n)),
  fc.constantFrom(
    '-0',
    '1.0',
    '1e400',
    '-1E-400',
    '9007199254740993',
    '0.000001',
    '0.0000001',
    '0.10',
    '100000000000000000000',
  ),
  fc
    .tuple(
      fc.constantFrom('', '-'),
      digits(1),
      fc.option(digits(1)),
      fc.constantFrom('', '', 'e5', 'E-07', 'e+21'),
    )
    .map(
      ([sign, int, frac, exp]) =>
        `${sign}${int.replace(/^0+(?=\d)/, '')}${frac === null ? '' : `.${frac}`}${exp}`,
    ),
)
const escaped = fc.constantFrom(
  '\\"',
  '\\\\',
  '\\/',
  '\\b',
  '\\n',
  '\\u0041',
  '\\u00E9',
  '\\ud83d\\ude00',
  '\\u2028',
)
const tricky = fc.constantFrom(
  ':1.0,',
  ',-0]',
  '{',
  '}',
  '[',
  ']',
  ' ',
  '\u007f',
  '\u2028',
  '\\"12\\":',
  '10:00.500Z',
  '1e5',
)
const plain = fc.string({ unit: 'binary', maxLength: 6 }).map((s) => s.replace(/["\\\p{Cc}]/gu, ''))
const rawString = fc
  .array(fc.oneof({ weight: 4, arbitrary: plain }, escaped, tricky), { maxLength: 4 })
  .map((parts) => parts.join(''))
const name = fc.oneof(
  fc.constantFrom(
    'a',
    'b',
    'c',
    '1',
    '2',
    '10',
    '',
    '__proto__',
    '_id',
    '_rev',
    '_access',
    '_replication_id',
  ),
  fc.constantFrom('\\u0061', '\\u005fid', '\\u0031', '_\\u0069d', '01', '-1', '4294967295'),
  // JSON.parse, which is asked for what is right, mistakes names where one holds a backslash (docs/gotchas.md).
  rawString.filter((raw) => !raw.includes('\\\\')),
)
const decoded = (raw: string): string => JSON.parse(`"${raw}"`)

type Member = [string, Written, string, string]

function writtenObject(members: Member[], inner: string, isSpecial: (name: string) => boolean): Written {
  const stored = new Map<string, string>()
  for (const [raw, value] of members) {
    if (!isSpecial(decoded(raw))) stored.set(decoded(raw), `"${raw}":${value.stored}`)
  }
  const sent = members.map(([raw, value, a, b]) => `${a}"${raw}"${b}:${a}${value.sent}${b}`).join()
  return { sent: `{${sent || inner}}`, stored: `{${[...stored.values()].join()}}` }
}

const { members } = fc.letrec<{ value: Written; members: Member[] }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, depthIdentifier: 'json' },
    fc
      .oneof(
        number,
        rawString.map((raw) => `"${raw}"`),
        fc.constantFrom('true', 'false', 'null'),
      )
      .map(same),
    fc.tuple(tie('members'), space).map(([list, inner]) => writtenObject(list, inner, () => false)),
    fc
      .array(fc.tuple(tie('value'), space, space), { maxLength: 4, depthIdentifier: 'json' })
      .map((items) => ({
        sent: `[${items.map(([item, a, b]) => a + item.sent + b).join()}]`,
        stored: `[${items.map(([item]) => item.stored).join()}]`,
      })),
  ),
  members: fc.array(fc.tuple(name, tie('value'), space, space), { maxLength: 6, depthIdentifier: 'json' }),
}))
const isSpecial = (name: string) => name.startsWith('_') && !KEPT.test(name)
const document = fc.tuple(members, space, space).map(([list, before, after]) => {
  const { sent, stored } = writtenObject(list, before, isSpecial)
  return { sent: before + sent + after, stored }
})

function same(text: string): Written {
  return { sent: text, stored: text }
}

/** What JSON.parse and JSON.stringify do not give back as it came, to tell where they can serve as the oracle. */
const BENT = [
  /\\[u/]/,
  /[{,][ \t\n\r]*"\d+"[ \t\n\r]*:/,
  /[:,[][ \t\n\r]*-?(?:\d{16}|[\d.]{17}|0\.0{6}|\d+(?:\.\d+)?[eE]|\d+\.\d*0(?!\d))/,
  /[:,[][ \t\n\r]*-0/,
]

function byParsing(text: string): { special: [string, unknown][]; body: string } {
  const all: [string, unknown][] = Object.entries(JSON.parse(text))
  const rest = Object.fromEntries(all.filter(([name]) => !isSpecial(name)))
  return { special: all.filter(([name]) => isSpecial(name)), body: JSON.stringify(rest) }
}

t.test('what is stored is the text that came', async () => {
  fc.assert(
    fc.property(document, ({ sent, stored }) => {
      equal(splitDocument(sent).body, stored)
    }),
    { numRuns: 3000 },
  )
})

t.test('the values are those of JSON.parse, bent or not', async () => {
  fc.assert(
    fc.property(document, ({ sent }) => {
      const { special, body } = splitDocument(sent)
      const expected = byParsing(sent)
      equal(JSON.stringify(JSON.parse(body)), expected.body)
      deepEqual(
        new Map([...special].map(([name, json]) => [name, JSON.parse(json)])),
        new Map(expected.special),
      )
      const again = splitDocument(body)
      deepEqual([again.special, again.body], [new Map(), body], 'a second time')
    }),
    { numRuns: 3000 },
  )
})

t.test('a text that is read with stops holds what it holds at once', async () => {
  const isCut = (name: string) => name.startsWith('_')
  fc.assert(
    fc.property(fc.array(document, { minLength: 10, maxLength: 60 }), (documents) => {
      const text = `{"a":[${documents.map(({ sent }) => sent).join()}],"_b":{"c":[${documents.at(-1)?.sent}]},"a":1}`
      const atOnce = new DocumentScanner(text, 0, isCut)
      equal(atOnce.advance(), true)
      const withStops = new DocumentScanner(text, 0, isCut)
      while (!withStops.advance(() => true));
      for (const scanner of [atOnce, withStops]) scanner.end()
      deepEqual([withStops.cut, withStops.gaps, withStops.moves], [atOnce.cut, atOnce.gaps, atOnce.moves])
    }),
    { numRuns: 200 },
  )
})

t.test('where JSON.parse and JSON.stringify do not bend the text, they agree letter by letter', async (t) => {
  let compared = 0
  fc.assert(
    fc.property(document, ({ sent }) => {
      fc.pre(!BENT.some((pattern) => pattern.test(sent)))
      compared += 1
      equal(splitDocument(sent).body, byParsing(sent).body)
    }),
    { numRuns: 500, maxSkipsPerRun: 1000 },
  )
  t.ok(compared >= 500)
})

t.test('a damaged text is accepted if and only if JSON.parse makes an object of it', async (t) => {
  const seen = { accepted: 0, refused: 0 }
  fc.assert(
    fc.property(document, damages('-', '.', 'e', 'u', '\\ud800'), ({ sent }, edits) => {
      const text = damaged(sent, edits)
      const outcome = outcomeOf(() => splitDocument(text))
      if (outcome === 'lone surrogate') match(text, /[\ud800-\udfff]|\\u[dD][89a-fA-F]/)
      else equal(outcome, outcomeByParsing(text), text)
      seen[outcome === 'accepted' ? 'accepted' : 'refused'] += 1
    }),
    { numRuns: 5000 },
  )
  t.ok(seen.accepted > 200 && seen.refused > 1000, JSON.stringify(seen))
})

function outcomeOf(act: () => unknown): string {
  try {
    act()
    return 'accepted'
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    return error.message.includes('lone surrogate') ? 'lone surrogate' : error.code
  }
}

function outcomeByParsing(text: string): string {
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    return 'invalid_json'
  }
  const isObject = typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)
  return isObject ? 'accepted' : 'document_not_object'
}
