/**
 * Someone who follows the feed of a database while nodes come and go: each request goes to another node than the one
 * before, with the `since` that this one has told. What is wrong is noted as lines.
 */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { numberOf } from '../kill/audit.ts'
import { generation, type Ledger } from '../kill/ledger.ts'

export type FeedKind = 'normal' | 'longpoll' | 'continuous'

/** What a feed tells of a document. */
export interface FeedRow {
  readonly seq: string
  readonly rev: string
  readonly isDeleted: boolean
}

interface Line {
  readonly id?: string
  readonly seq?: string
  readonly deleted?: boolean
  readonly changes?: readonly { readonly rev: string }[]
  readonly last_seq?: string
}

interface FeedReaderOptions {
  /** Of the nodes, without a slash at the end. */
  readonly urls: readonly string[]
  readonly database: string
  readonly kind: FeedKind
  /** What the others have written to the database. */
  readonly ledger: Ledger
}

/** A client gives a node up that is silent for this time, in ms. */
const SILENCE_MS = 2500
/** How long a continuous feed is followed on one node, in ms. */
const FOLLOWED_MS = { from: 100, to: 1500 }
const HEARTBEAT_MS = 500
/** How long another request waits, in ms. */
const LONGPOLL_MS = 1000
const BETWEEN_MS = 60
/** Documents whose last acknowledged write must be in an answer that was asked for afterwards. */
const SAMPLE = 40
/** How long a feed may take to tell everything, in ms. */
const CATCH_UP_MS = 20_000

export class FeedReader {
  readonly #options: FeedReaderOptions
  readonly name: string
  readonly #agent = new Agent({ connect: { timeout: SILENCE_MS } })
  readonly #rows = new Map<string, FeedRow>()
  readonly #running: Promise<void>
  #since = '0'
  #node = 0
  #isOver = false
  readonly faults: string[] = []
  /** Rows that were read; requests that were answered; requests that broke. */
  readonly count = { rows: 0, answered: 0, broken: 0 }

  get database(): string {
    return this.#options.database
  }

  constructor(options: FeedReaderOptions) {
    this.#options = options
    this.name = `the ${options.kind} feed of ${options.database}`
    this.#running = this.#run()
  }

  async #run(): Promise<void> {
    const { urls, kind } = this.#options
    while (!this.#isOver) {
      this.#node = (this.#node + 1 + randomInt(urls.length - 1)) % urls.length
      try {
        await this.#read(urls[this.#node] as string)
        this.count.answered += 1
      } catch {
        this.count.broken += 1
      }
      if (kind !== 'continuous') await sleep(randomInt(BETWEEN_MS))
    }
  }

  async #read(url: string): Promise<void> {
    const { kind, database } = this.#options
    const path = `${url}/${database}/_changes?feed=${kind}&since=${encodeURIComponent(this.#since)}`
    if (kind === 'continuous') return this.#follow(`${path}&heartbeat=${HEARTBEAT_MS}`)
    if (kind === 'longpoll') {
      const { results, last_seq } = await this.#ask(`${path}&timeout=${LONGPOLL_MS}`)
      return this.#take(url, [...results, { last_seq }])
    }
    const limit = randomInt(4) === 0 ? `&limit=${1 + randomInt(50)}` : ''
    const sample = limit === '' ? this.#sample() : []
    const { results, last_seq } = await this.#ask(path + limit)
    this.#take(url, [...results, { last_seq }])
    for (const { id, rev } of sample) {
      if (generation(this.#rows.get(id)?.rev ?? null) >= generation(rev)) continue
      this.faults.push(`${this.name} from ${url} lacks ${id} ${rev}, which was acknowledged before`)
    }
  }

  /** Revisions that are acknowledged now, of documents that nobody purges. */
  #sample(): readonly { readonly id: string; readonly rev: string }[] {
    const cells = [...(this.#options.ledger.docs.get(this.#options.database) ?? [])]
    return Array.from(
      { length: Math.min(SAMPLE, cells.length) },
      () => cells[randomInt(cells.length)],
    ).flatMap((entry) => {
      const rev = entry?.[1].known.rev ?? null
      return entry === undefined || rev === null || entry[0].startsWith('purge-')
        ? []
        : [{ id: entry[0], rev }]
    })
  }

  async #ask(url: string): Promise<{ readonly results: readonly Line[]; readonly last_seq: string }> {
    const answer = await request(url, { dispatcher: this.#agent, signal: AbortSignal.timeout(SILENCE_MS) })
    const text = await answer.body.text()
    if (answer.statusCode !== 200) throw new Error(text)
    return JSON.parse(text) as { results: Line[]; last_seq: string }
  }

  async #follow(url: string): Promise<void> {
    const signal = AbortSignal.timeout(FOLLOWED_MS.from + randomInt(FOLLOWED_MS.to - FOLLOWED_MS.from))
    const answer = await request(url, { dispatcher: this.#agent, signal })
    let rest = ''
    try {
      for await (const chunk of answer.body.setEncoding('utf8')) {
        const lines = (rest + chunk).split('\n')
        // The last one is not complete, and may never be.
        rest = lines.pop() ?? ''
        this.#take(
          url,
          lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Line),
        )
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  #take(url: string, lines: readonly Line[]): void {
    for (const { id, seq, changes, deleted = false, last_seq } of lines) {
      if (id !== undefined && seq !== undefined) {
        if (numberOf(seq) <= numberOf(this.#since))
          this.faults.push(`${this.name}: ${url} tells ${id} at ${seq} after ${this.#since}`)
        this.#since = seq
        this.#rows.set(id, { seq, rev: changes?.[0]?.rev ?? '', isDeleted: deleted })
        this.count.rows += 1
      } else if (last_seq !== undefined) {
        if (numberOf(last_seq) < numberOf(this.#since))
          this.faults.push(`${this.name}: ${url} ends with ${last_seq} after ${this.#since}`)
        this.#since = last_seq
      }
    }
  }

  /**
   * Waits until the feed has told everything, and compares it.
   * @param rows of a database to which nobody writes, by id
   * @param lastSeq of this database
   */
  async compare(rows: ReadonlyMap<string, FeedRow>, lastSeq: string): Promise<void> {
    const end = performance.now() + CATCH_UP_MS
    while (numberOf(this.#since) < numberOf(lastSeq) && performance.now() < end) await sleep(20)
    for (const [id, { seq, rev, isDeleted }] of rows) {
      const told = this.#rows.get(id)
      if (told?.rev === rev && told.isDeleted === isDeleted && numberOf(told.seq) === numberOf(seq)) continue
      this.faults.push(
        `${this.name}, at ${this.#since}, tells ${JSON.stringify(told)} of ${id}, ${rev} at ${seq}`,
      )
    }
    for (const id of this.#rows.keys()) {
      const isPurged = this.#options.ledger.docs.get(this.#options.database)?.get(id)?.known.rev === null
      if (!rows.has(id) && !isPurged) this.faults.push(`${this.name} tells of ${id}, which is not there`)
    }
  }

  async close(): Promise<void> {
    this.#isOver = true
    await this.#agent.destroy()
    await this.#running
  }
}
