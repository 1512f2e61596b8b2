/** What the generators of requests have in common: parameters, ids, revisions and documents, good and odd. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'

/** Requests of one subject. */
export interface Family {
  /** Requests that come first, after the database is made. */
  begin(choices: Choices): readonly Step[]
  /** A random request, or some that only make sense together. */
  step(choices: Choices): Step | readonly Step[]
  /** How many random requests a case has. */
  readonly steps?: number
}

export type Value = (choices: Choices) => string

export const JSON_TYPE = { 'Content-Type': 'application/json' }

/** In the order in which CouchDB stores those of one request. */
export const IDS = ['+', 'a b', 'd0', 'd1', 'd2', 'd3', 'd4', 'x/y', 'é'] as const
const ODD_IDS = [
  '',
  '_x',
  '_design',
  '_design/',
  '_local/',
  '_local/l',
  '_design/d',
  '_all_docs',
  ' ',
] as const

/** Each form that a revision has, and some that it has not. The first are no revisions that a server makes. */
export const HASHES = ['0'.repeat(32), 'f'.repeat(32), `${'0'.repeat(31)}1`, `${'f'.repeat(31)}e`] as const
export const ODD_REVS = [
  '',
  '1',
  '1-',
  '-',
  'x',
  '0-1',
  '1-x',
  '01-a',
  '1-A',
  '-1-a',
  '"1-a"',
  '1-a,2-b',
  '99-z',
  'null',
  '[]',
  '1 -a',
] as const

export const flag: Value = (c) => c.mostly(['true', 'false'], ['', '1', 'TRUE', 'null', '"true"', 'x'], 0.2)
export const count: Value = (c) =>
  c.mostly(['0', '1', '2', '3', '100'], ['-1', '', 'x', '1.5', '"1"', '1e2', '007', 'null', ' 1'], 0.2)
export const id: Value = (c) => c.pick(IDS)
export const anyId: Value = (c) => c.mostly(IDS, ODD_IDS, 0.08)
export const key: Value = (c) =>
  c.mostly(
    [
      '"d1"',
      '"d3"',
      '"a b"',
      '1',
      '2',
      'null',
      '[1]',
      '["a",1]',
      '{}',
      '[]',
      '"\\ufff0"',
      'true',
      '1.5',
      '"é"',
      '[{}]',
    ],
    ['', '{', 'bad', 'd1', '"', '[1', 'é', '1 2'],
    0.12,
  )
export const keys: Value = (c) =>
  c.mostly(
    [`[${c.list(4, () => c.pick(['"d1"', '"d2"', '"zz"', '1', '"_design/d"', 'null']))}]`],
    ['{}', '[1', '"a"', '', 'null', '1'],
    0.15,
  )

/** A revision of the document as the server knows it, or one that it hardly knows. */
export function revision(c: Choices, of: string): string {
  if (c.oddly(0.12)) return c.pick(ODD_REVS)
  if (c.oddly(0.2))
    return c.pick([
      `{old:${of}}`,
      `{old:${of}}`,
      `{rev:${c.pick(IDS)}}`,
      `${1 + c.below(3)}-${c.pick(HASHES)}`,
    ])
  return `{rev:${of}}`
}

/** `?a=b`, of at most some of the parameters. */
export function query(c: Choices, parameters: Readonly<Record<string, Value>>, most = 3): string {
  const names = Object.keys(parameters)
  const chosen = new Set(c.list(most, () => c.pick(names)))
  const pairs = [...chosen].map((name) => `${name}=${encoded((parameters[name] as Value)(c))}`)
  if (pairs.length > 0 && c.oddly(0.02)) pairs.push(c.pick(['x=y', '', 'a', '=', 'rev']))
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`
}

/** Percent-encoded, but for the names that stand for values. */
export function encoded(text: string): string {
  return text
    .split(/(\{(?:rev|old):[^{}]*\}|\{\w+\})/)
    .map((part, at) => (at % 2 === 1 ? encodeURIComponent(part) : encodeURIComponent(part)))
    .join('')
}

/** @returns `/{db}/` and the id */
export function docPath(of: string): string {
  if (of.startsWith('_design/') || of.startsWith('_local/')) {
    const at = of.indexOf('/') + 1
    return `/{db}/${of.slice(0, at)}${encodeURIComponent(of.slice(at))}`
  }
  return `/{db}/${encodeURIComponent(of)}`
}

export function json(
  method: string,
  path: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Step {
  return {
    method,
    path,
    headers: { ...JSON_TYPE, ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  }
}

export function get(path: string, headers?: Readonly<Record<string, string>>): Step {
  return { method: 'GET', path, ...(headers && { headers }) }
}

/** Documents whose values sort in every way. */
export function document(c: Choices): Record<string, unknown> {
  return {
    ...(c.chance(0.8) && { n: c.pick([0, 1, 2, 3, -1, 1.5, '1', 'b', null, true, [1, 2], { a: 1 }]) }),
    ...(c.chance(0.5) && { type: c.pick(['note', 'task', 'é']) }),
    ...(c.chance(0.3) && { tags: c.some(['a', 'b', 'c'], 0.5) }),
    ...(c.chance(0.3) && { in: { a: c.pick([1, 2, 'x']), list: [{ x: 1 }, { x: c.below(3) }] } }),
  }
}

/** Ordinary documents, and a deleted one. */
export function filled(c: Choices): Step[] {
  const docs = IDS.map((_id) => ({ _id, ...document(c) }))
  return [json('POST', '/{db}/_bulk_docs', { docs }), { method: 'DELETE', path: '/{db}/d4?rev={rev:d4}' }]
}

/** A body that is not what the call asks for. */
export function oddBody(c: Choices): string {
  return c.pick([
    '',
    '{',
    '[]',
    '{}',
    'null',
    '1',
    '"x"',
    '[{}]',
    '{"docs":1}',
    '{"docs":{}}',
    '{"keys":1}',
    'x',
    '{"a":1,}',
    ' ',
  ])
}

/** Headers of a JSON body, now and then none, or others. */
export function typed(c: Choices): Readonly<Record<string, string>> {
  return c.mostly<Readonly<Record<string, string>>>(
    [JSON_TYPE],
    [
      {},
      { 'Content-Type': 'text/plain' },
      { 'Content-Type': '' },
      { 'Content-Type': 'application/json; charset=utf-8' },
    ],
    0.1,
  )
}
