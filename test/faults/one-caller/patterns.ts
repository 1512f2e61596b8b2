/** Patterns that cost much: a generator, and an attack for each way by which a pattern reaches the server. */
import { Random } from '../../protocol/random.ts'
import type { NamedAttack } from './attacks.ts'
import type { Sent } from './world.ts'

const ATOMS = [
  'a',
  'k',
  '.',
  'é',
  '한',
  '\\d',
  '\\W',
  '\\pL',
  '\\P{Lu}',
  '\\b',
  '^',
  '$',
  '\\x{1E942}',
  '[^a]',
]
const RANGES = [
  'B-\u{1E942}',
  'a-z',
  '\\x{41}-\\x{10FFFF}',
  '\u{100}-\u{1E900}',
  '\\n-\\777',
  '-',
  '[:word:]',
  '\\pL',
  '\\PN',
  '\\w',
  '\\-',
  '[',
  ']',
]
const REPEATS = ['*', '+?', '?', '{1000}', '{0,1000}', '{30}', '{2,}', '{999999}', '{', '{1,2', '{,5}']
const OPENINGS = ['(', '(?:', '(?i)', '(?i:', '(?-i:', '(?s-U:', '(?P<n>', '(?P<', '\\Q', '\\E']

type Shape = (random: Random, length: number) => string

const filled = (length: number, next: () => string): string => {
  let text = ''
  while (text.length < length) text += next()
  return text
}

const SHAPES: readonly Shape[] = [
  function classes(random, length) {
    return `(?i)[${filled(length, () => random.pick(RANGES))}]`
  },
  function manyClasses(random, length) {
    return filled(
      length,
      () => `[${random.pick(RANGES)}${random.pick(RANGES)}]${random.pick(['', '|', '+'])}`,
    )
  },
  function oneRange(random, length) {
    return `(?i)[${random.pick(RANGES).repeat(Math.ceil(length / 4))}]`
  },
  function repeatsSideBySide(random, length) {
    return `(${filled(length, () => random.pick(ATOMS) + random.pick(REPEATS))})${random.pick(REPEATS)}`
  },
  function repeatsInEachOther(random, length) {
    const depth = 1 + random.below(Math.min(300, length >> 3))
    return '(?:'.repeat(depth) + random.pick(ATOMS) + filled(depth * 4, () => `)${random.pick(REPEATS)}`)
  },
  function alternatives(random, length) {
    return filled(length, () => `${random.pick(ATOMS)}${random.below(5000).toString(36)}|`)
  },
  function literal(random, length) {
    return random.pick(['(?i)', '', '\\Q']) + random.pick(['k', 'ab', 'ſ', '\\.', '한']).repeat(length)
  },
  function stars(random, length) {
    return filled(length, () => `${random.pick(ATOMS)}${random.pick(['*', '?', '+'])}`)
  },
  function anything(random, length) {
    return filled(length, () =>
      random.pick(random.pick([ATOMS, RANGES, REPEATS, OPENINGS, ['[', ']', ')', '|']])),
    )
  },
]

/** A pattern, valid or not. Most have the greatest length that settee reads. */
export function costlyPattern(random: Random): string {
  const length = random.pick([10, 200, 1900, 1900])
  const text = random.pick(SHAPES)(random, length)
  return random.below(20) === 0 ? text : text.slice(0, 2000)
}

/** A selector with one pattern or many. */
export function costlySelector(random: Random): object {
  const count = random.pick([1, 1, 3, 50, 500])
  const patterns = Array.from({ length: count }, () => ({ text: { $regex: costlyPattern(random) } }))
  return { $or: patterns }
}

/** Requests that are sent one after the other. */
type Way = (
  database: string,
  selector: object,
  n: number,
) => readonly (Omit<Sent, 'caller' | 'body'> & { readonly body: object })[]

const NOWHERE = 'http://127.0.0.1:1/nowhere'

/** Each way by which a pattern reaches the server. */
const WAYS: Readonly<Record<string, Way>> = {
  _find: (database, selector) => [{ method: 'POST', path: `${database}/_find`, body: { selector } }],
  _explain: (database, selector) => [{ method: 'POST', path: `${database}/_explain`, body: { selector } }],
  _index: (database, selector, n) => [
    {
      method: 'POST',
      path: `${database}/_index`,
      body: { index: { fields: ['text'], partial_filter_selector: selector }, ddoc: `made-${n % 20}` },
    },
  ],
  'a stored index': (database, selector, n) => [
    {
      method: 'POST',
      path: `${database}/_bulk_docs`,
      body: {
        new_edits: false,
        docs: [{ _id: `_design/stored-${n}`, _rev: '1-a', language: 'query', views: storedIndex(selector) }],
      },
    },
    {
      method: 'POST',
      path: `${database}/_find`,
      body: { selector: { text: { $gt: 'x' } }, use_index: `stored-${n}` },
    },
  ],
  '_changes with a selector': (database, selector) => [
    { method: 'POST', path: `${database}/_changes?filter=_selector`, body: { selector } },
  ],
  _replicate: (database, selector, n) => [
    {
      method: 'POST',
      path: '/_replicate',
      body: { source: n % 2 === 0 ? database.slice(1) : NOWHERE, target: NOWHERE, selector },
    },
  ],
  'a document of _replicator': (_database, selector, n) => [
    { method: 'PUT', path: `/_replicator/costly-${n}`, body: { source: NOWHERE, target: NOWHERE, selector } },
  ],
}

function storedIndex(selector: object): object {
  const map = { fields: { text: 'asc' }, partial_filter_selector: selector }
  return { costly: { map, reduce: '_count', options: { def: { fields: ['text'] } } } }
}

/** Documents that the patterns are matched against. */
function texts(random: Random): object {
  const docs = Array.from({ length: 20 }, (_, n) => ({
    _id: `text-${n}`,
    text: filled(20_000, () => random.pick(['a', 'k', 'ab', 'é', '한글', '\u{1E922}', '0', ' ', '\n'])),
  }))
  return { docs }
}

/**
 * The attacks, by the admin of a database: two connections that send selectors one after the other. They are sent to a
 * server with other databases on the same thread.
 */
export const PATTERN_ATTACKS: readonly NamedAttack[] = Object.entries(WAYS).map(([name, way], at) => ({
  name: `patterns that cost much: ${name}`,
  mode: 'single',
  run: async (world, signal) => {
    const random = new Random(at + 1)
    const answers: Record<number, number> = {}
    const send = async (sent: ReturnType<Way>[number]) => {
      const status = await world.send({ ...sent, caller: 'tenant', body: JSON.stringify(sent.body) }, signal)
      answers[status] = (answers[status] ?? 0) + 1
    }
    await world.send({ method: 'PUT', path: '/_replicator', caller: 'admin' }, signal)
    await send({ method: 'POST', path: `${world.database}/_bulk_docs`, body: texts(random) })
    let n = 0
    const loop = async () => {
      while (!signal.aborted) {
        for (const sent of way(world.database, costlySelector(random), n++)) await send(sent)
      }
    }
    await Promise.all([loop(), loop()])
    return answers
  },
}))
