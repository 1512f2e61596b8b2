/** Readers of a database's feed of every kind: what each has seen, where it stands, and what it saw wrong. */
import { setTimeout as delay } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { generation } from '../kill/ledger.ts'

export interface Row {
  readonly seq: string
  readonly id: string
  readonly rev: string
}

export type Kind = 'normal' | 'longpoll' | 'continuous' | 'eventsource'

/** The newest revision of each document that is acknowledged, by its number. */
export type Acknowledged = Iterable<readonly [id: string, newest: number]>

interface ReaderOptions {
  /** Between two rows, in ms; a slow reader holds up its own feed. */
  readonly pauseMs?: number
  /** Between two requests, in ms. */
  readonly betweenMs?: number
  /** Rows after which it leaves, and comes back. */
  readonly patience?: number
  readonly query?: string
}

export class Reader {
  readonly name: string
  readonly #urlOf: () => string
  readonly #kind: Kind
  readonly #pauseMs: number
  readonly #betweenMs: number
  readonly #patience: number
  readonly #acknowledged: Acknowledged
  readonly #query: string
  /** The newest row of each document. */
  readonly rows = new Map<string, Row>()
  /** Every row, by document and revision. */
  readonly seen = new Map<string, string>()
  readonly faults: string[] = []
  since = '0'
  connections = 0
  readonly #agent = new Agent({ bodyTimeout: 0 })
  #isOver = false
  #leave: () => void = () => undefined

  /**
   * @param url of the database; a function is asked before each request
   * @param acknowledged read before each request
   */
  constructor(
    url: string | (() => string),
    acknowledged: Acknowledged,
    kind: Kind,
    { pauseMs = 0, betweenMs = 0, patience = Number.POSITIVE_INFINITY, query = '' }: ReaderOptions = {},
  ) {
    this.#urlOf = typeof url === 'string' ? () => url : url
    this.#betweenMs = betweenMs
    this.#acknowledged = acknowledged
    this.#kind = kind
    this.#pauseMs = pauseMs
    this.#patience = patience
    this.#query = query
    this.name = `${kind}${query}${pauseMs > 0 ? ', slow' : ''}${patience < Number.POSITIVE_INFINITY ? ', restless' : ''}`
  }

  /** Reads on and on, from where it stands after each break, until it is stopped. */
  async run(): Promise<void> {
    while (!this.#isOver) {
      try {
        await this.#connect()
      } catch {
        await delay(20)
      }
      if (this.#betweenMs > 0) await delay(this.#betweenMs)
    }
    await this.#agent.destroy()
  }

  stop(): void {
    this.#isOver = true
    this.#leave()
  }

  async #connect(): Promise<void> {
    const promised = new Map(this.#acknowledged)
    const leaving = new AbortController()
    this.#leave = () => leaving.abort()
    const { statusCode, body } = await request(
      `${this.#urlOf()}/_changes?feed=${this.#kind}&since=${this.since}&heartbeat=2000${this.#query}`,
      { dispatcher: this.#agent, signal: leaving.signal },
    )
    if (statusCode !== 200) {
      await body.dump()
      throw new Error(String(statusCode))
    }
    this.connections += 1
    let [count, isWhole] = [0, false]
    let before = this.since
    for await (const line of linesOf(body)) {
      const text = line.replace(/^data: /, '').replace(/,$/, '')
      const row = parsed(text)
      if (row?.last_seq !== undefined) this.since = row.last_seq
      if (/^"last_seq":/.test(line)) {
        this.since = parsed(`{${line}`)?.last_seq ?? this.since
        isWhole = true
      }
      if (row?.id === undefined) continue
      this.#take({ seq: row.seq, id: row.id, rev: row.changes[0].rev }, before)
      before = row.seq
      if (this.#pauseMs > 0) await delay(this.#pauseMs)
      if (++count >= this.#patience) break
    }
    if (isWhole) this.#holdAgainst(promised)
  }

  #take(row: Row, before: string): void {
    if (numberOf(row.seq) <= numberOf(before)) this.faults.push(`${row.seq} comes after ${before}`)
    const newest = this.rows.get(row.id)
    if (newest !== undefined && generation(row.rev) < generation(newest.rev)) {
      this.faults.push(`${row.id} is ${row.rev} after ${newest.rev}`)
    }
    this.rows.set(row.id, row)
    const key = `${row.id} ${row.rev}`
    const token = this.seen.get(key)
    if (token !== undefined && token !== row.seq) this.faults.push(`${key} is at ${token}, and at ${row.seq}`)
    this.seen.set(key, row.seq)
    // Of an answer that is read whole only its own end says how far it goes.
    if (this.#kind === 'continuous' || this.#kind === 'eventsource') this.since = row.seq
  }

  /** Whatever was acknowledged before a request is in the answer that it had whole, or in one before. */
  #holdAgainst(promised: ReadonlyMap<string, number>): void {
    for (const [id, newest] of promised) {
      const seen = generation(this.rows.get(id)?.rev ?? null)
      if (seen < newest)
        this.faults.push(`${id} was at ${newest} before the request, and is ${seen} up to ${this.since}`)
    }
  }
}

async function* linesOf(bytes: AsyncIterable<Buffer>): AsyncIterable<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of bytes) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    // The rows of a JSON answer end with \r\n.
    for (const line of lines) yield line.trimEnd()
  }
}

function numberOf(seq: string): number {
  return Number.parseInt(seq, 10)
}

// biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
function parsed(text: string): any {
  try {
    const value = JSON.parse(text)
    return typeof value === 'object' ? value : undefined
  } catch {
    return undefined
  }
}
