/**
 * Runs tables of the protocol's promises. A row has data, a request and its answer. Each file has one listening
 * server, and each row has its own database.
 *
 *     { of: '3.1 rev', says: 'a revision that was superseded',
 *       given: [put('x', { v: 1 }, { keep: { first: 'rev' } }), put('x', { _rev: '{first}' })],
 *       ask: 'GET /{db}/x?rev={first}', answer: { json: { _id: 'x', _rev: '{first}', v: 1 } } },
 */
import { setTimeout as rest } from 'node:timers/promises'
import file, { type Test } from 'tap'
import { Pool } from 'undici'
import { startTestServer } from '../helpers/server.ts'
import { type Answer, type Answered, compared, isPlain } from './answers.ts'
import type { User } from './users.ts'

export interface Row {
  /** The key, or keys, of parameters.ts that the row is about. */
  readonly of: string | readonly string[]
  readonly says: string
  /** Requests before: each must succeed, or have the status it names. */
  readonly given?: readonly Ask[]
  readonly ask?: Ask
  readonly answer?: Answer
  /** For several requests in order, each with its answer; instead of `ask` and `answer`. */
  readonly steps?: readonly (readonly [ask: Ask, answer: Answer])[]
  /** Whether it is about what a proxy in between answers or changes itself. */
  readonly isDirect?: boolean
}

/**
 * A request: its line, such as `GET /{db}/x`, or an object with more. `{db}` and the values kept from earlier answers
 * are replaced in it, and in the expected answer.
 */
export type Ask = string | readonly [line: string, more: AskMore]

export interface AskMore {
  /** Sent as JSON, with its content type unless `headers` has one. */
  readonly json?: unknown
  /** Sent as it is, without a content type. */
  readonly body?: string | Buffer
  readonly headers?: Readonly<Record<string, string>>
  /** Who asks: by default a server admin. The table must run on `startServerWithUsers`. */
  readonly as?: User
  /** For a request of `given`: the status it must have; by default any of success. */
  readonly status?: number
  /** Names for values of the answer, by their path in its JSON (`results.0.seq`), or `header etag`. */
  readonly keep?: Readonly<Record<string, string>>
  /** Requests made once the head of the answer is there, while its body is not. */
  readonly meanwhile?: readonly Ask[]
  /** Reads the answer until its text matches, and hangs up. */
  readonly until?: RegExp
}

/** The server of a table. */
export interface Listening {
  readonly url: string
  /** The `Authorization` of who asks; without this nobody logs in, and everybody is an admin. */
  readonly authorization?: (user: User) => string | undefined
  /** How it is spoken to; by default HTTP/1.1 over nothing. */
  readonly connection?: Pool.Options
  /** Whether there is a proxy in between; rows that are direct are left out. */
  readonly isProxied?: boolean
  /** How long other nodes may not know of a changed setting, in ms; by default there are none. */
  readonly settingsMs?: number
}

/** Documents with chosen revisions. */
export function stored(...docs: readonly unknown[]): Ask {
  return ['POST /{db}/_bulk_docs', { json: { new_edits: false, docs }, keep: {} }]
}

/** A document written by PUT. */
export function put(id: string, doc: unknown = {}, more: AskMore = {}): Ask {
  return [`PUT /{db}/${id}`, { ...more, json: doc }]
}

/** The answer of an error. */
export function failed(status: number, error: string, reason: string | RegExp): Answer {
  return { status, json: { error, reason } }
}

/** Runs each row as a test. Tables of a file with the same kind of server share it. */
export function runTable(
  t: Test,
  rows: readonly Row[],
  start: (t: Pick<Test, 'teardown' | 'fail'>) => Promise<Listening> = startTestServer,
): void {
  t.test(`${rows.length} rows`, async (t) => {
    const started = servers.get(start) ?? open(start)
    servers.set(start, started)
    const { server, pool } = await started
    for (const row of rows.filter(({ isDirect }) => !(isDirect && server.isProxied))) {
      const run = new Run(server, pool, `row-${serial++}`)
      await t.test(`${[row.of].flat().join(', ')}: ${row.says}`, (t) => run.row(t, row))
    }
  })
}

type Start = NonNullable<Parameters<typeof runTable>[2]>

const servers = new Map<Start, ReturnType<typeof open>>()
let serial = 0

async function open(start: Start) {
  const server = await start(file)
  const pool = new Pool(server.url, server.connection)
  file.teardown(() => pool.destroy())
  return { server, pool }
}

/** One row, with the values that it has kept so far. */
class Run {
  readonly #server: Listening
  readonly #pool: Pool
  readonly #kept: Record<string, string>

  constructor(server: Listening, pool: Pool, db: string) {
    this.#server = server
    this.#pool = pool
    this.#kept = { db }
  }

  async row(t: Test, { given = [], ask, answer = {}, steps = [] }: Row): Promise<void> {
    await this.#prepare('PUT /{db}')
    for (const each of given) await this.#prepare(each)
    for (const [one, expected] of ask === undefined ? steps : [[ask, answer] as const]) {
      this.#check(t, lineOf(one), await this.#send(one), expected)
    }
    await this.#send('DELETE /{db}')
  }

  async #prepare(ask: Ask): Promise<void> {
    const { status, text } = await this.#send(ask)
    const { status: wanted, body } = moreOf(ask) as AskMore
    const good = wanted === undefined ? status >= 200 && status < 300 : status === wanted
    const replicated = lineOf(ask).includes('_bulk_docs') && body === undefined && /"error"/.test(text)
    if (!good || replicated) throw new Error(`${lineOf(ask)} was answered ${status}: ${text}`)
  }

  async #send(ask: Ask): Promise<Answered> {
    const { method, path, more } = this.#filled(ask)
    const { json, body, headers, as, keep = {}, meanwhile = [], until } = more
    if (as !== undefined && this.#server.authorization === undefined) throw new Error(`${as} cannot log in`)
    const authorization = this.#server.authorization?.(as ?? 's')
    const asked = performance.now()
    const answer = await this.#pool.request({
      method: method as 'GET',
      path,
      headers: {
        ...(json !== undefined && { 'content-type': 'application/json' }),
        ...(authorization !== undefined && { authorization }),
        ...headers,
      },
      body: json === undefined ? (body ?? null) : JSON.stringify(json),
    })
    for (const each of meanwhile) await this.#prepare(each)
    const { bytes, broken } = await read(answer.body, until)
    const took = performance.now() - asked
    if (method !== 'GET' && path.includes('/_config/')) await rest(this.#server.settingsMs ?? 0)
    const text = bytes.toString()
    const { statusCode: status, headers: head } = answer
    const answered = { status, headers: head, bytes, text, json: parsed(text), took, broken }
    for (const [name, path] of Object.entries(keep)) this.#kept[name] = valueAt(answered, path)
    return answered
  }

  #filled(ask: Ask) {
    const [method = '', path = ''] = this.#fill(lineOf(ask)).split(' ')
    const { meanwhile, until, ...more } = moreOf(ask)
    const filled = this.#fillAll(more) as AskMore
    return { method, path, more: { ...filled, ...(meanwhile && { meanwhile }), ...(until && { until }) } }
  }

  /** @throws Error for a name that was not kept */
  #fill(text: string): string {
    return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
      const value = this.#kept[name]
      if (value === undefined) throw new Error(`nothing was kept as ${whole}`)
      return value
    })
  }

  #fillAll(value: unknown): unknown {
    if (typeof value === 'string') return this.#fill(value)
    if (Array.isArray(value)) return value.map((each) => this.#fillAll(each))
    if (!isPlain(value)) return value
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [this.#fill(key), this.#fillAll(each)]),
    )
  }

  /** One assertion, which shows all that was looked at. */
  #check(t: Test, line: string, found: Answered, expected: Answer): void {
    const answer = this.#fillAll(expected) as Answer
    const { seen, wanted } = compared(found, answer)
    t.strictSame(seen, wanted, line, { answered: found.text.slice(0, 1_000) })
    const { took } = answer
    if (took) t.ok(took[0] <= found.took && found.took <= took[1], `it took ${found.took} ms`)
  }
}

function lineOf(ask: Ask): string {
  return typeof ask === 'string' ? ask : ask[0]
}

function moreOf(ask: Ask): AskMore {
  return typeof ask === 'string' ? {} : ask[1]
}

async function read(body: AsyncIterable<Buffer>, until: RegExp | undefined) {
  const chunks: Buffer[] = []
  try {
    for await (const chunk of body) {
      chunks.push(chunk)
      // Leaving the loop destroys the stream, and with it the connection.
      if (until?.test(Buffer.concat(chunks).toString())) break
    }
    return { bytes: Buffer.concat(chunks), broken: false }
  } catch {
    return { bytes: Buffer.concat(chunks), broken: true }
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

/** @throws Error when there is no such value */
function valueAt({ json, headers, text }: Answered, path: string): string {
  const [, header] = /^header (.*)$/.exec(path) ?? []
  const steps = header === undefined ? path.split('.') : [header]
  let value: unknown = header === undefined ? json : headers
  for (const step of steps) value = (value as Record<string, unknown> | undefined)?.[step]
  if (typeof value !== 'string' && typeof value !== 'number') throw new Error(`no ${path} in ${text}`)
  return String(value)
}
