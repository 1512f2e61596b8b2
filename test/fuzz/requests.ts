/** Whole requests: a route, a method, and all that goes with them, as bytes for the wire. */
import type { Path } from '../../src/http/route-table.ts'
import { type FuzzBody, makeBody } from './bodies.ts'
import { Choices } from './choices.ts'
import { ordinary } from './documents.ts'
import { frame, head, type Unframed, wireTarget } from './framing.ts'
import { type Header, makeHeaders, requestId } from './headers.ts'
import { mutated } from './mutations.ts'
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
  /** It is HTTP, and its body is what it says; else there may be no answer, or several. */
  readonly isHonest: boolean
  /** It leaves its connection fit for others; else it gets one of its own. */
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
    return { index, route, method, target, bytes: all, isHonest: true, isSound: true, leavesAfter: null }
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
    const unframed = { route: path.url, method, target, headers, body: this.#body(place), isVault }
    return this.#framed(index, unframed)
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

  #framed(index: number, unframed: Unframed): FuzzRequest {
    const choices = this.#choices
    const { route, method, target, isVault } = unframed
    const isBroken = !isVault && choices.chance(0.01)
    const framing = frame(choices, unframed)
    const headers = [...unframed.headers, ...framing.headers]
    const bytes = Buffer.concat([head(method, wireTarget(target), headers, framing.version), framing.bytes])
    const leavesAfter = staysOpen(target) ? 40 + choices.below(200) : null
    const isHttp =
      [...USUAL, ...UNUSUAL].includes(method as 'GET') && /^(?:\/|http:\/\/[\w.-]+(?:\/|$))/.test(target)
    const areHeaders = headers.every(([, value]) => /^[\t\x20-\x7e\x80-\xff]*$/.test(value))
    const isHonest = !isBroken && isHttp && areHeaders && framing.isSound
    // The server ends the connection after it: Node's parser loses what comes behind.
    const isUpgrade = headers.some(([name]) => name.toLowerCase() === 'upgrade')
    const isSound = isHonest && leavesAfter === null && !isUpgrade && !choices.chance(0.005)
    const sent = isBroken ? mutated(bytes, choices) : bytes
    return { index, route, method, target, bytes: sent, isHonest, isSound, leavesAfter }
  }
}

function override(choices: Choices): Header {
  const method = choices.pick(['GET', 'HEAD', 'PUT', 'DELETE', 'COPY', 'TRACE', 'CONNECT', 'PATCH', 'x', ''])
  return ['X-HTTP-Method-Override', method]
}

/** Whether the answer may stay open as long as others write: a feed that waits. */
function staysOpen(target: string): boolean {
  const said = unescaped(target)
  return /_changes|_db_updates|_settee\/log/.test(said) && /feed|heartbeat/i.test(said)
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
