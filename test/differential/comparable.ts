/** What of an answer is compared: without what two servers cannot have in common, such as times and tokens. */
import type { Answer } from './side.ts'
import { parsed } from './side.ts'
import type { Step } from './step.ts'

/** An answer without what must differ. */
export interface Comparable {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** JSON as values, feeds as lists of values, everything else as text. */
  readonly body: unknown
}

/** The headers that clients read. */
const HEADERS = [
  'accept-ranges',
  'allow',
  'cache-control',
  'content-disposition',
  'content-encoding',
  'content-location',
  'content-md5',
  'content-range',
  'content-security-policy',
  'content-type',
  'etag',
  'location',
  'set-cookie',
  'www-authenticate',
  'x-couch-full-commit',
  'x-couch-update-newrev',
  'x-couch-id',
]

/** Members whose values are of one server; what their type is stays. */
const OWN = new Set([
  'bookmark',
  'seq',
  'last_seq',
  'update_seq',
  'purge_seq',
  'source_last_seq',
  'start_last_seq',
  'end_last_seq',
  'recorded_seq',
  'instance_start_time',
  'start_time',
  'end_time',
  'last_updated',
  'started_on',
  'updated_on',
  'date',
  'pid',
  'timestamp',
  'session_id',
  '_replication_id',
  'replication_id',
  'checkpointed_source_seq',
  'source_seq',
  'through_seq',
  '_replication_state_time',
  'uuid',
  'uuids',
  'version',
  'git_sha',
  'vendor',
  'features',
  'signature',
  'view_signature',
  'sizes',
  'execution_time_ms',
  'raw_path_port',
  'peer',
  'derived_key',
  'salt',
  'node',
  'data_size',
  'disk_size',
  'waiting_clients',
  'waiting_commit',
  'collator_versions',
  'compact_running',
])

/** Sets. */
const UNORDERED = new Set<string>(['missing', 'possible_ancestors', 'purged_infos', 'revs'])

/** Lists of the whole server, which have the work of cases that run at the same time. */
const OF_ALL_CASES = /^\/(_active_tasks|_scheduler\/(jobs|docs))($|\?)/

/** The values that a server made itself, by the place where they were seen first. One for each side and case. */
export class Symbols {
  readonly #known = new Map<string, string>()
  readonly #given: (hash: string) => boolean
  #prefix = ''
  #count = 0

  /** @param given whether a hash is one that a request has named, and so is the same for both */
  constructor(given: (hash: string) => boolean) {
    this.#given = given
  }

  /** @param step whose answer follows */
  begin(step: number): void {
    this.#prefix = `h${step}`
    this.#count = 0
  }

  replaced(text: string): string {
    return text.replace(/(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])/g, (hash) => {
      if (this.#given(hash)) return hash
      const known = this.#known.get(hash)
      if (known !== undefined) return known
      const made = `${this.#prefix}.${this.#count++}`
      this.#known.set(hash, made)
      return made
    })
  }
}

/**
 * @param step that was answered
 * @param origin of the server, which answers may name
 * @param symbols of the case; changed by what the answer has
 */
export function comparable(
  { method, path }: Step,
  answer: Answer,
  origin: string,
  symbols: Symbols,
): Comparable {
  const { status, headers, body } = answer
  const plain = (text: string) =>
    symbols.replaced(text.replaceAll(origin, 'http://SERVER').replaceAll(new URL(origin).host, 'HOST'))
  const isLocal = /\/_local(\/|%2F)/.test(path)
  const type = String(headers['content-type'] ?? '')
  const kept = HEADERS.flatMap((name): [string, string][] => {
    const value = headers[name]
    if (value === undefined) return []
    // That of a `_local` document is opaque.
    return [[name, name === 'etag' && isLocal ? '"?"' : header(name, String(value), plain)]]
  })
  const isEmpty = status === 304 || (method !== 'HEAD' && body.length === 0)
  if (isEmpty && headers['content-length'] !== undefined)
    kept.push(['content-length', zeroOrMore(headers['content-length'])])
  const cut = answer.isCut && status !== 0 ? { cut: true } : {}
  const content = OF_ALL_CASES.test(path) && status === 200 ? 'a list' : bodyOf(body, type, plain)
  return { status, headers: Object.fromEntries(kept), body: answer.isCut ? { ...cut, content } : content }
}

function zeroOrMore(length: string): string {
  return length === '0' ? '0' : 'more'
}

function header(name: string, value: string, plain: (text: string) => string): string {
  if (name === 'set-cookie')
    return value.replace(/AuthSession=[^;]+/, 'AuthSession=?').replace(/Expires=[^;]+/i, 'Expires=?')
  if (name === 'etag' && !/^"\d+-[0-9a-f]{32}"$/.test(value) && /^"[\w+/=-]{20,}"$/.test(value)) return '"?"'
  if (name === 'content-type')
    return value.replace(/boundary="?[^";]+"?/, 'boundary=?').replaceAll(/;\s*/g, '; ')
  return plain(value)
}

function bodyOf(body: Buffer, type: string, plain: (text: string) => string): unknown {
  const text = body.toString()
  const boundary = /boundary="?([^";]+)/.exec(type)?.[1]
  if (boundary !== undefined) return partsOf(text, plain)
  const whole = parsed(text)
  if (whole !== undefined) return valueIn(whole, '', plain)
  const isEvents = type.startsWith('text/event-stream')
  // When a heartbeat is due is a matter of time. A comment of an event stream, which keeps the connection open, is one as well.
  const lines = text
    .replaceAll('event: heartbeat\ndata: \n\n', '')
    .split('\n')
    .filter((line) => line.trim() !== '' && !(isEvents && line.startsWith(':')))
  if (isEvents && lines.length === 0) return []
  const values = lines.map((line) => parsed(line.replace(/^(data|id): ?/, '')))
  if (lines.length > 0 && values.some((value) => typeof value === 'object')) {
    return values.map((value, at) =>
      typeof value !== 'object' ? tokenless(plain(lines[at] as string)) : valueIn(value, '', plain),
    )
  }
  return plain(Buffer.from(text).equals(body) ? text : body.toString('base64'))
}

function tokenless(line: string): string {
  return line.replace(/^(id: )?"?\d+-[\w-]+"?$/, '$1token')
}

/** The boundaries of multipart bodies, also of nested ones, are random. */
function partsOf(text: string, plain: (text: string) => string): unknown {
  const parts = text
    .split(/\r\n(?:\r\n)?|--[0-9a-f]{32}(?:--)?/)
    .filter((line) => line !== '' && line !== '--')
  return parts.map((line) => {
    const json = /^[{[]/.test(line) ? parsed(line) : undefined
    if (json !== undefined) return valueIn(json, '', plain)
    return plain(line.replace(/boundary="?[^";]+"?/, 'boundary=?'))
  })
}

function valueIn(value: unknown, name: string, plain: (text: string) => string): unknown {
  if (OWN.has(name) && value !== null && value !== undefined) return ownOf(name, value)
  if (typeof value === 'string') return plain(value)
  if (Array.isArray(value)) {
    const list = value.map((each) => valueIn(each, '', plain))
    return UNORDERED.has(name) ? list.map((each) => JSON.stringify(each)).sort() : list
  }
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => key !== 'ref')
      .map(([key, each]) => [plain(key), valueIn(each, key, plain)]),
  )
}

/** A sequence keeps its number, everything else its type. */
function ownOf(name: string, value: unknown): string {
  const number = /seq$/.test(name) && typeof value === 'string' ? /^(\d+)-/.exec(value)?.[1] : undefined
  return number === undefined ? `<${Array.isArray(value) ? 'list' : typeof value}>` : `${number}-<token>`
}
