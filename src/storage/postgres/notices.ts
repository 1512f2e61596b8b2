/**
 * How the openers of a store learn of each other's changes: notices, which come after some ms and may be lost, and below them a
 * poll, which comes later and loses nothing. Any role of the PostgreSQL database may send notices, so they say only where to look:
 * what has changed is read from the tables. Notices are sent after the commit and apart from it: inside the transaction
 * all commits would wait for each other.
 */
import { setTimeout as rest } from 'node:timers/promises'
import type { CatalogChange } from '../records.ts'
import { FOREIGN_EVENT_MS } from '../store-events.ts'
import { CatalogChanges, type OnPosition } from './catalog-changes.ts'
import type { Connections } from './connections.ts'
import type { DatabaseEvents, DatabasePosition } from './database-events.ts'
import { NoticeChannel } from './notice-channel.ts'

/** The least time between two batches of notices, in ms: those of the time between are sent, and read, together. */
const BATCH_MS = 5
/** How often it is asked, in ms: what a poll finds must be told in time. */
const POLL_MS = FOREIGN_EVENT_MS - 200
/** How many databases one statement asks for. */
const POLLED = 1000
/** The least time between two looks at the catalog, in ms. */
const CATALOG_MS = 20
/** How often old rows are removed, in ms. */
const SWEEP_MS = 30_000
/** PostgreSQL allows less than 8,000 bytes. */
const MAX_PAYLOAD = 7900
/** The part of PostgreSQL's queue of notices, from 0 to 1, beyond which none are sent: somebody does not take them. */
const FULL = 0.1

const READ_USAGE = { name: 'read_usage', text: 'SELECT pg_notification_queue_usage()' }
const READ_POSITIONS = {
  name: 'read_positions',
  text: `SELECT db, incarnation, timeline <> timeline(), update_seq, settings_version
    FROM database WHERE db = ANY($1::bigint[])`,
}

type PositionRow = readonly [
  db: number,
  incarnation: number,
  /** Its newest changes may be gone, so that its numbers go back: whoever has it open must begin anew. */
  isMoved: boolean,
  updateSeq: number,
  settingsVersion: number,
]

/** A notice: whether the catalog has changed, and which databases have. */
type Notice = readonly [isCatalog: boolean, databases: readonly number[]]

interface NoticesOptions {
  readonly connections: Connections
  /** Identifies this opener: its own notices are not heard. */
  readonly opener: string
}

export class Notices {
  readonly #connections: Connections
  readonly #opener: string
  readonly #channel: NoticeChannel
  readonly #changes: CatalogChanges
  /** The events of open databases, with the incarnation that each has open. */
  readonly #followed = new Map<number, Map<DatabaseEvents, number>>()
  #hearCatalog: ((changes: readonly CatalogChange[]) => void) | null = null
  /** What is to be sent: the newest position of each database; null: it is gone. */
  #unsent = new Map<number, DatabasePosition | null>()
  #isCatalogUnsent = false
  /** Databases that notices have named since they were last read. */
  readonly #heard = new Set<number>()
  #hearing: Promise<void> | null = null
  /** Whether a batch is sent, or was sent just now. */
  #isSending = false
  #sendTimer: NodeJS.Timeout | undefined
  #pollTimer: NodeJS.Timeout | null = null
  #catalogTimer: NodeJS.Timeout | null = null
  #polling: Promise<void> | null = null
  #reading: Promise<void> | null = null
  #isFull = false
  #sweptAt = performance.now()
  #isClosed = false

  constructor({ connections, opener }: NoticesOptions) {
    this.#connections = connections
    this.#opener = opener
    this.#changes = new CatalogChanges(connections, opener)
    this.#channel = new NoticeChannel({
      connections,
      onNotice: (payload) => this.#hear(payload),
      onListening: () => this.#pollSoon(0),
    })
  }

  /** Tells the events of an incarnation of a database what other openers do, until the returned function is called. */
  follow(db: number, incarnation: number, events: DatabaseEvents): () => void {
    const all = this.#followed.get(db) ?? new Map<DatabaseEvents, number>()
    this.#followed.set(db, all.set(events, incarnation))
    this.#start()
    return () => {
      all.delete(events)
      if (all.size === 0 && this.#followed.get(db) === all) this.#followed.delete(db)
    }
  }

  /**
   * Reports the changes of the catalog from now on, and where the store is.
   * @throws as `Connections.read`
   */
  async followCatalog(
    hear: (changes: readonly CatalogChange[]) => void,
    onPosition: OnPosition,
  ): Promise<void> {
    await this.#changes.begin(onPosition)
    this.#hearCatalog = hear
    this.#start()
  }

  /** Tells other openers where a database stands; null: it is gone. */
  notify(db: number, position: DatabasePosition | null): void {
    this.#unsent.set(db, position)
    this.#sendSoon()
  }

  /** Tells other openers to look for changes of the catalog. */
  notifyCatalog(): void {
    this.#isCatalogUnsent = true
    this.#sendSoon()
  }

  /** Looks for changes of the catalog, and where the store is, once more. @throws as `Connections.read` */
  async lookAgain(): Promise<void> {
    if (!this.#isClosed) await this.#readCatalog()
  }

  /** Sends what is left, and ends. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#sendTimer)
    for (const timer of [this.#pollTimer, this.#catalogTimer]) clearTimeout(timer ?? undefined)
    await this.#send()
    await this.#channel.close()
    await Promise.allSettled([this.#polling, this.#reading, this.#hearing])
  }

  #start(): void {
    if (this.#isClosed) return
    this.#channel.start()
    if (this.#pollTimer === null && this.#polling === null) this.#pollSoon(POLL_MS)
  }

  #sendSoon(): void {
    if (this.#isClosed || this.#isSending) return
    this.#isSending = true
    // Changes of this turn are told together.
    setImmediate(async () => {
      await this.#send()
      if (this.#isClosed) return
      this.#sendTimer = setTimeout(() => {
        this.#isSending = false
        if (this.#unsent.size > 0 || this.#isCatalogUnsent) this.#sendSoon()
      }, BATCH_MS)
    })
  }

  async #send(): Promise<void> {
    const unsent = [...this.#unsent]
    const isCatalog = this.#isCatalogUnsent
    this.#unsent = new Map()
    this.#isCatalogUnsent = false
    if (this.#isFull || (unsent.length === 0 && !isCatalog)) return
    await this.#channel.send(payloadsOf(this.#opener, isCatalog, unsent))
  }

  #hear(payload: string): void {
    const notice = noticeIn(payload, this.#opener)
    if (notice === null) return
    const [isCatalog, databases] = notice
    for (const db of databases) if (this.#followed.has(db)) this.#heard.add(db)
    if (this.#heard.size > 0) this.#hearing ??= this.#readHeard()
    if (isCatalog) this.#readCatalogSoon()
  }

  /** Reads where the databases stand that notices have named, at once and then at intervals. Never rejects. */
  async #readHeard(): Promise<void> {
    while (this.#heard.size > 0 && !this.#isClosed) {
      const numbers = [...this.#heard]
      this.#heard.clear()
      // What is not read now is found by the next poll.
      await this.#readAll(numbers).catch(() => undefined)
      await rest(BATCH_MS)
    }
    this.#hearing = null
  }

  /** @param row undefined: the database was deleted */
  #tell(db: number, row: PositionRow | undefined): void {
    for (const [events, opened] of this.#followed.get(db) ?? []) {
      if (row === undefined) events.end()
      else {
        const [, incarnation, isMoved, updateSeq, settingsVersion] = row
        if (incarnation > opened || (incarnation === opened && isMoved)) events.end()
        // An older incarnation was read before this one was opened.
        if (incarnation === opened) events.hear({ updateSeq, settingsVersion })
      }
    }
  }

  #pollSoon(ms: number): void {
    if (this.#isClosed) return
    clearTimeout(this.#pollTimer ?? undefined)
    this.#pollTimer = setTimeout(() => {
      this.#pollTimer = null
      this.#polling ??= this.#poll()
        // A store that is not reached now is asked again by the next one.
        .catch(() => undefined)
        .finally(() => {
          this.#polling = null
          if (this.#pollTimer === null) this.#pollSoon(POLL_MS)
        })
    }, ms)
  }

  async #poll(): Promise<void> {
    this.#channel.check()
    const [status] = await this.#connections.read<[usage: number]>({
      ...READ_USAGE,
      values: [],
      isBackground: true,
    })
    this.#isFull = (status as [number])[0] > FULL
    await this.#readCatalog()
    await this.#readAll([...this.#followed.keys()])
    if (this.#hearCatalog === null || performance.now() - this.#sweptAt < SWEEP_MS) return
    this.#sweptAt = performance.now()
    await this.#changes.sweep()
  }

  async #readAll(numbers: readonly number[]): Promise<void> {
    for (let at = 0; at < numbers.length && !this.#isClosed; at += POLLED)
      await this.#readPositions(numbers.slice(at, at + POLLED))
  }

  async #readPositions(numbers: readonly number[]): Promise<void> {
    const rows = await this.#connections.read<PositionRow>({
      ...READ_POSITIONS,
      values: [numbers],
      isBackground: true,
    })
    const found = new Map(rows.map((row) => [row[0], row]))
    for (const db of numbers) this.#tell(db, found.get(db))
  }

  #readCatalogSoon(): void {
    if (this.#hearCatalog === null || this.#isClosed) return
    this.#catalogTimer ??= setTimeout(async () => {
      await this.#readCatalog().catch(() => undefined)
      this.#catalogTimer = null
    }, CATALOG_MS)
  }

  /** Reads after the read under way, which may have begun before the change. */
  #readCatalog(): Promise<void> {
    const hear = this.#hearCatalog
    if (hear === null) return Promise.resolve()
    const before = this.#reading ?? Promise.resolve()
    const reading = before
      .catch(() => undefined)
      .then(async () => {
        if (!this.#isClosed) hear(await this.#changes.read())
      })
      .finally(() => {
        if (this.#reading === reading) this.#reading = null
      })
    this.#reading = reading
    return reading
  }
}

/** @returns texts of at most {@link MAX_PAYLOAD} bytes, all of which are ASCII */
function payloadsOf(
  opener: string,
  isCatalog: boolean,
  unsent: readonly (readonly [db: number, position: DatabasePosition | null])[],
): string[] {
  const entries = unsent.map(([db, position]) =>
    position === null ? [db] : [db, position.updateSeq, position.settingsVersion],
  )
  const payloads: string[] = []
  let line: string[] = []
  let length = 0
  const end = () => {
    payloads.push(`${opener} ${isCatalog ? 1 : 0} ${line.join(' ')}`)
    line = []
    length = 0
  }
  for (const entry of entries) {
    const text = entry.join(',')
    if (length + text.length + 1 > MAX_PAYLOAD - opener.length - 3) end()
    line.push(text)
    length += text.length + 1
  }
  if (line.length > 0 || payloads.length === 0) end()
  return payloads
}

/** @returns null for an own notice; what cannot be read is left out, since anybody may send on the channel */
function noticeIn(payload: string, opener: string): Notice | null {
  const [sender, isCatalog, ...entries] = payload.split(' ')
  if (sender === opener) return null
  // Older nodes read where a database stands from the rest of an entry.
  const databases = entries.map((entry) => Number(entry.split(',', 1)[0])).filter(Number.isSafeInteger)
  return [isCatalog === '1', databases]
}
