/** Whole requests: a route, a method, and all that goes with them, as bytes for the wire. */
import { gzipSync } from 'node:zlib'
import type { Path } from '../../src/http/route-table.ts'
import { type FuzzBody, makeBody } from './bodies.ts'
import { Choices } from './choices.ts'
import { ordinary } from './documents.ts'
import { type Header, makeHeaders, requestId } from './headers.ts'
import { brokenGzip, mutated } from './mutations.ts'
import { makeAddress, pickDatabase } from './paths.ts'
import { makeQuery } from './queries.ts'
import { ADMIN, type Facts, GUARDED_VAULT, VAULTS, WILD_DATABASES } from './world.ts'

export interface FuzzRequest {
  readonly index: number
  /** The pattern of the route. */
  readonly route: string
  readonly method: string
  readonly target: string
  readonly bytes: Buffer
  /** It leaves its connection fit for others; else it gets one of its own, which it may spoil. */
  readonly isSound: boolean
  /** After so many milliseconds of an answer that stays open the client leaves; null: it waits for the end. */
  readonly leavesAfter: number | null
  /** A document that must be stored, and kept from then on: its address and its members. */
  readonly keeps?: { readonly path: string; readonly members: string }
  /** It attacks what a validate function guards, and so must be refused. */
  readonly mustFail?: true
}

const USUAL = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'COPY'] as const
const UNUSUAL = [
  'PATCH',
  'OPTIONS',
  'TRACE',
  'PROPFIND',
  'LOCK',
  'MKCOL',
  'PURGE',
  'SEARCH',
  'M-SEARCH',
] as const
/** Such as no parser of HTTP lets pass, or that ends what HTTP is about. */
const UNKNOWN = ['FOO', 'get', 'CONNECT', 'PRI', ''] as const

/** Routes with more behind them than the others have; they are asked three times as often. */
const DEEP = /:docid|:ddoc$|_bulk_docs$|_bulk_get$|_changes$|_view\/:view$|_all_docs$|_purge$/

/** A kept document is attacked only when the request that makes it has long been answered. */
const SETTLED = 3000
const SAFE_HOST = '127.0.0.1'

export class RequestMaker {
  readonly #choices: Choices
  readonly #paths: readonly Path[]
  readonly #facts: Facts
  #index = 0

  constructor(seed: number, paths: readonly Path[], facts: Facts) {
    this.#choices = new Choices(seed)
    this.#paths = [...paths, ...paths.filter(({ url }) => DEEP.test(url)).flatMap((path) => [path, path])]
    this.#facts = facts
  }

  next(): FuzzRequest {
    const index = this.#index++
    if (index % 100 === 0) return this.#remaking(index)
    if (index % 250 === 7) return this.#keeping(index)
    if (index % 50 === 9 && index > SETTLED) return this.#attack(index)
    return this.#random(index)
  }

  /** Makes a database that may have been deleted, or most requests would meet none. */
  #remaking(index: number): FuzzRequest {
    const name = WILD_DATABASES[(index / 100) % WILD_DATABASES.length] as string
    return this.#plain(index, 'PUT', `/${encodeURIComponent(name)}`, '/:db')
  }

  /** A new document, which must be there, just so, in the end. */
  #keeping(index: number): FuzzRequest {
    const path = keptPath(index)
    const members = [
      '"ledger":true',
      ...uniquely(ordinary(this.#choices).filter((member) => !member.startsWith('"big"'))),
    ].join(',')
    const made = this.#plain(index, 'PUT', path, '/:db/:docid', `{${members}}`)
    return { ...made, keeps: { path, members } }
  }

  #attack(index: number): FuzzRequest {
    const last = Math.floor((index - SETTLED) / 250)
    const path = keptPath(this.#choices.below(last + 1) * 250 + 7)
    const { query, body, method } = this.#choices.pick([
      { method: 'PUT', query: '', body: '{"attack":1}' },
      { method: 'PUT', query: '?rev=1-a', body: '{"attack":2}' },
      { method: 'PUT', query: '?new_edits=false', body: '{"attack":3,"_rev":"99-f"}' },
      { method: 'PUT', query: '', body: '{"_deleted":true}' },
      { method: 'DELETE', query: '', body: undefined },
      { method: 'DELETE', query: '?rev=2-a', body: undefined },
    ])
    const isReplicated = query.includes('new_edits')
    const guarded = isReplicated ? path.replace(/^\/[^/]+/, `/${GUARDED_VAULT}`) : path
    return { ...this.#plain(index, method, guarded + query, '/:db/:docid', body), mustFail: true }
  }

  /** A request with nothing odd about it. */
  #plain(index: number, method: string, target: string, route: string, body?: string): FuzzRequest {
    const headers: Header[] = [
      ['Authorization', `Basic ${Buffer.from(`${ADMIN.name}:${ADMIN.password}`).toString('base64')}`],
      ['X-Couch-Request-ID', requestId(index)],
      ['Content-Type', 'application/json'],
    ]
    const bytes = body === undefined ? null : Buffer.from(body)
    if (bytes !== null) headers.push(['Content-Length', String(bytes.length)])
    const all = Buffer.concat([head(method, target, headers), bytes ?? Buffer.alloc(0)])
    return { index, route, method, target, bytes: all, isSound: true, leavesAfter: null }
  }

  #random(index: number): FuzzRequest {
    const choices = this.#choices
    const path = choices.pick(this.#paths)
    const database = path.url.startsWith('/:db') ? pickDatabase(choices) : ''
    const isVault = VAULTS.includes(database)
    const method = this.#method(path, isVault)
    const isRead = method === 'GET' || method === 'HEAD'
    const place = { choices, facts: this.#facts, route: path.url, method, database, isRead, isVault, index }
    const address = makeAddress(place)
    const target = address.path + makeQuery(place)
    const headers = makeHeaders(place)
    if (!isVault && method === 'POST' && choices.chance(0.04)) headers.push(override(choices))
    const draft: Draft = { index, path, method, target, headers, body: this.#body(place), isVault }
    return this.#framed(draft)
  }

  /** Mostly one that the path has. A vault is never deleted. */
  #method(path: Path, isVault: boolean): string {
    const choices = this.#choices
    const own = [...Object.keys(path.methods), ...(path.methods.GET ? ['HEAD', 'GET', 'GET'] : [])]
    const kind = choices.weighted({ own: 90, usual: 6, unusual: 3, unknown: 1 })
    const method = choices.pick(
      kind === 'own' ? own : kind === 'usual' ? USUAL : kind === 'unusual' ? UNUSUAL : UNKNOWN,
    )
    if (path.url !== '/:db' || method !== 'DELETE') return method
    return isVault || choices.chance(0.85) ? 'GET' : method
  }

  #body(place: Parameters<typeof makeBody>[0] & { isRead: boolean }): FuzzBody | null {
    const { choices, isRead } = place
    const takesBody = place.method === 'POST' || place.method === 'PUT'
    if (!choices.chance(takesBody ? 0.97 : isRead ? 0.03 : 0.1)) return null
    const body = makeBody(place)
    if (body.isFixed || choices.chance(0.7)) return body
    return { ...body, bytes: mutated(body.bytes, choices) }
  }

  #framed(draft: Draft): FuzzRequest {
    const choices = this.#choices
    const { index, path, method, target, headers } = draft
    const isBroken = !draft.isVault && choices.chance(0.01)
    const framing = frame(choices, draft)
    headers.push(...framing.headers)
    const bytes = Buffer.concat([head(method, wireTarget(target), headers, framing.version), framing.bytes])
    const leavesAfter = staysOpen(target) ? 40 + choices.below(200) : null
    const isHttp =
      [...USUAL, ...UNUSUAL].includes(method as 'GET') && /^(?:\/|http:\/\/[\w.-]+(?:\/|$))/.test(target)
    const areHeaders = headers.every(([, value]) => /^[\t\x20-\x7e\x80-\xff]*$/.test(value))
    const isSound =
      !isBroken && isHttp && areHeaders && framing.isSound && leavesAfter === null && !choices.chance(0.005)
    const sent = isBroken ? mutated(bytes, choices) : bytes
    return { index, route: path.url, method, target, bytes: sent, isSound, leavesAfter }
  }
}

interface Draft {
  readonly index: number
  readonly path: Path
  readonly method: string
  readonly target: string
  readonly headers: Header[]
  readonly body: FuzzBody | null
  readonly isVault: boolean
}

interface Framing {
  readonly headers: readonly Header[]
  readonly bytes: Buffer
  readonly isSound: boolean
  readonly version?: string
}

/** How the body is told from what follows, and how it is coded; seldom with a lie. */
function frame(choices: Choices, { body, headers, isVault }: Draft): Framing {
  const expects = headers.some(([name]) => name === 'Upgrade') ? { isSound: false } : { isSound: true }
  if (body === null)
    return {
      headers: choices.chance(0.02) ? [['Content-Length', '0']] : [],
      bytes: Buffer.alloc(0),
      ...expects,
    }
  const { bytes, coding } = coded(choices, body)
  const type = typeOf(choices, body)
  const said = [...coding, ...(type === null ? [] : [['Content-Type', type] as Header])]
  const kind = choices.weighted({ length: 90, chunked: 7, expecting: 1, odd: 2 })
  const length: Header = ['Content-Length', String(bytes.length)]
  if (kind === 'length') return { headers: [...said, length], bytes, ...expects }
  if (kind === 'chunked') {
    return {
      headers: [...said, ['Transfer-Encoding', 'chunked']],
      bytes: chunked(choices, bytes),
      ...expects,
    }
  }
  if (kind === 'expecting')
    return { headers: [...said, length, ['Expect', '100-continue']], bytes, ...expects }
  // What is left of a body is read as the next request: in a vault that shall be none.
  const lies = LIES.slice(isVault ? 2 : 0)
  return { ...choices.pick(lies)(bytes, said, choices), isSound: false }
}

const LIES: readonly ((
  bytes: Buffer,
  said: readonly Header[],
  choices: Choices,
) => Omit<Framing, 'isSound'>)[] = [
  (bytes, said) => ({ headers: [...said, ['Content-Length', String(bytes.length >> 1)]], bytes }),
  (bytes, said) => ({ headers: said, bytes }),
  (bytes, said) => ({ headers: [...said, ['Content-Length', String(bytes.length + 9)]], bytes }),
  (bytes, said) => ({ headers: [...said, ['Content-Length', '-1']], bytes }),
  (bytes, said) => ({ headers: [...said, ['Content-Length', '99999999999999999999']], bytes }),
  (bytes, said) => ({ headers: [...said, ['Content-Length', '5'], ['Content-Length', '6']], bytes }),
  (bytes, said) => ({ headers: [...said, ['Content-Length', '5'], ['Transfer-Encoding', 'chunked']], bytes }),
  (bytes, said) => ({ headers: [...said, ['Transfer-Encoding', 'gzip']], bytes }),
  (bytes, said) => ({ headers: [...said, ['Transfer-Encoding', 'chunked']], bytes }),
  (bytes, said, choices) => ({
    headers: [...said, ['Transfer-Encoding', 'chunked']],
    bytes: mutated(chunked(choices, bytes), choices),
  }),
  (bytes, said) => ({
    headers: [...said, ['Content-Length', String(bytes.length)]],
    bytes,
    version: 'HTTP/1.0',
  }),
  (bytes, said) => ({
    headers: [...said, ['Content-Length', String(bytes.length)]],
    bytes,
    version: 'HTTP/9.9',
  }),
  (bytes, said) => ({
    headers: [...said, ['Content-Length', String(bytes.length)], ['X-Huge', 'x'.repeat(70_000)]],
    bytes,
  }),
  (bytes, said) => ({
    headers: [...said, ['Content-Length', String(bytes.length)], ['Connection', 'close']],
    bytes,
  }),
  (bytes, said) => ({
    headers: [...said, ['Content-Length', String(bytes.length)], ['X-Bad', 'a\u0001\u007f']],
    bytes,
  }),
]

/** Four megabytes from next to nothing. */
const BOMB = gzipSync(Buffer.alloc(4_000_000, 0x20))
const PADDING = Buffer.alloc(1_200_000, 0x20)

function coded(choices: Choices, { bytes, isFixed }: FuzzBody): { bytes: Buffer; coding: readonly Header[] } {
  if (isFixed || choices.chance(0.94)) return { bytes, coding: [] }
  // More than all bodies together may take of memory.
  if (choices.chance(0.03)) return { bytes: Buffer.concat([bytes, PADDING]), coding: [] }
  const coding = (value: string): readonly Header[] => [['Content-Encoding', value]]
  const packed = gzipSync(bytes)
  return choices.pick([
    { bytes: packed, coding: coding('gzip') },
    { bytes: packed, coding: coding('GZIP ') },
    { bytes: brokenGzip(packed, choices), coding: coding('gzip') },
    { bytes, coding: coding('gzip') },
    { bytes: packed, coding: [] },
    { bytes, coding: coding(choices.pick(['deflate', 'br', 'identity', 'x', 'gzip, gzip'])) },
    { bytes: BOMB, coding: coding('gzip') },
  ])
}

function typeOf(choices: Choices, { type }: FuzzBody): string | null {
  if (choices.chance(0.95)) return type
  return choices.pick([
    null,
    'application/json; charset=utf-8',
    'APPLICATION/JSON',
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/related',
    'multipart/related; boundary=',
    'multipart/related; boundary=fuzz-boundary',
    'multipart/form-data; boundary="',
    'x',
    ';',
  ])
}

function chunked(choices: Choices, bytes: Buffer): Buffer {
  const pieces: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + choices.below(Math.max(20, bytes.length >> 1))
    const piece = bytes.subarray(at, at + size)
    pieces.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'))
    at += size
  }
  return Buffer.concat([...pieces, Buffer.from('0\r\n\r\n')])
}

function override(choices: Choices): Header {
  const method = choices.pick(['GET', 'HEAD', 'PUT', 'DELETE', 'COPY', 'TRACE', 'CONNECT', 'PATCH', 'x', ''])
  return ['X-HTTP-Method-Override', method]
}

function head(method: string, target: string, headers: readonly Header[], version = 'HTTP/1.1'): Buffer {
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')
  return Buffer.from(`${method} ${target} ${version}\r\nHost: ${SAFE_HOST}\r\n${lines}\r\n`, 'latin1')
}

/** What would end the first line, or is no ASCII, goes as an escape: HTTP has no word for it. */
function wireTarget(target: string): string {
  return target.replace(/[^\x21-\x7e]+/gu, (odd) => encodeURIComponent(odd.toWellFormed()))
}

/** Whether the answer may stay open as long as others write: a feed that waits. */
function staysOpen(target: string): boolean {
  const said = unescaped(target)
  return /_changes|_db_updates/.test(said) && /feed|heartbeat/i.test(said)
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function keptPath(index: number): string {
  return `/${VAULTS[(index >> 1) % VAULTS.length]}/kept-later-${index}`
}

/** Members without a name twice, which JSON would keep the last of. */
function uniquely(members: readonly string[]): string[] {
  return [...new Map(members.map((member) => [/^"[^"]*"/.exec(member)?.[0], member])).values()]
}
