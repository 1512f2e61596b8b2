/** The storage engine over PostgreSQL, which any number of nodes share: one schema, `settee`, for all databases. */
import { randomBytes } from 'node:crypto'
import { setTimeout as rest } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import type { Catalog } from '../catalog.ts'
import type { CommitTally } from '../commit-tally.ts'
import { DamageReports } from '../damage.ts'
import type { VersionedStore } from '../history-store.ts'
import type { IndexStores } from '../index-store.ts'
import { isRolledBack } from '../sequence.ts'
import type { CheckPosition, CheckStep, OpenOptions, StorageEngine } from '../storage-engine.ts'
import type { StoreAddress } from '../store-address.ts'
import type { RetainedVersions } from '../upkeep.ts'
import { CatalogWrites } from './catalog-writes.ts'
import { Connections } from './connections.ts'
import { DatabaseEvents } from './database-events.ts'
import { beginStartedEpoch, restoreDatabase } from './database-restoration.ts'
import { DatabaseViews, SETTINGS_COLUMNS, type SettingsRow } from './database-view.ts'
import { migrate } from './migrations.ts'
import { NotedLeaves } from './noted-leaves.ts'
import { Notices } from './notices.ts'
import { DamagedRows } from './open-database.ts'
import { PendingDeletions } from './pending-deletions.ts'
import { PostgresCatalog } from './postgres-catalog.ts'
import { PostgresIndexes } from './postgres-indexes.ts'
import { PostgresStore } from './postgres-store.ts'
import { checkStored } from './stored-check.ts'
import { storedText } from './stored-text.ts'
import { NOTE_UNCOUNTED } from './sums-anew.ts'

export interface PostgresEngineOptions {
  readonly address: StoreAddress
  /** The maximum number of connections, without the one for notices between nodes. */
  readonly poolSize: number
  /** Called before each statement; if it throws, the statement is not sent. For fault tests. */
  readonly onOperation?: (operation: string) => void
  /** Called with a row of a database that is not what was written, each time that it is read. */
  readonly onDamage?: (database: string, error: CouchError) => void
  /** Called when damaged leaves of a database were noted. */
  readonly onDamagedLeaf?: (database: string) => void
  /** Called when damaged leaves were written again. @param rest how many are not */
  readonly onRestored?: (database: string, leaves: number, rest: number) => void
  /** The file in which the node remembers how far the store was; by default, it remembers that only while it runs. */
  readonly memoryPath?: string
  /** Counts the commits of the engine's databases. */
  readonly tally?: CommitTally
  /** The time, in ms since 1970; by default the system clock. */
  readonly now?: () => number
  /** When and how often rows of deleted databases are removed, in ms. For tests. */
  readonly pendingDeletions?: { readonly delayMs: number; readonly lookMs: number }
}

const FIND = { name: 'find_opened', text: 'SELECT e.db, s.boot FROM store s, entry e WHERE e.name = $1' }
const OPEN = {
  name: 'open_database',
  text: `SELECT incarnation, partitioned, shards, created_at, update_seq, timeline <> timeline(), boot,
      damaged_leaves IS NOT NULL AND damaged_at >= coalesce(restored_at, 0), ${SETTINGS_COLUMNS}
    FROM database WHERE db = $1`,
}
const RETAINED = {
  name: 'retained_versions',
  text: `SELECT d.compacted_at, (SELECT min(r.superseded_at) FROM revision r WHERE r.db = $1 AND r.retained)
    FROM database d WHERE d.db = $1`,
}

type OpenRow = readonly [
  incarnation: number,
  partitioned: boolean,
  shards: number,
  createdAt: number,
  updateSeq: number,
  isMoved: boolean,
  boot: string,
  needsDevices: boolean,
  ...settings: SettingsRow,
]

/** How long the end of a node waits for a last look at where the store is, in ms. */
const REMEMBER_MS = 1000

/** A database that is restored again and again while it is opened has another fault. */
const MAX_OPENINGS = 3

/** @returns an engine whose connections are made when they are needed */
export function postgresEngine(options: PostgresEngineOptions): StorageEngine {
  return new PostgresEngine(options)
}

class PostgresEngine implements StorageEngine {
  readonly capabilities = { durable: true, sharedWriters: true }
  readonly copies = null
  readonly #options: PostgresEngineOptions
  readonly #connections: Connections
  readonly #opener = randomBytes(9).toString('base64url')
  readonly #writes: CatalogWrites
  readonly #notices: Notices
  readonly #pendingDeletions: PendingDeletions
  readonly #stores = new Set<PostgresStore>()
  /** The numbers of open databases, by name, for their indexes. */
  readonly #numbers = new Map<string, number>()
  readonly #now: () => number
  #catalog: PostgresCatalog | null = null

  constructor(options: PostgresEngineOptions) {
    const { address, poolSize, onOperation, now = Date.now } = options
    this.#options = options
    this.#now = now
    this.#connections = new Connections({ address, size: poolSize, onOperation })
    this.#writes = new CatalogWrites(this.#connections, this.#opener)
    this.#notices = new Notices({ connections: this.#connections, opener: this.#opener })
    this.#pendingDeletions = new PendingDeletions({
      connections: this.#connections,
      ...options.pendingDeletions,
    })
  }

  async openCatalog(copy?: string): Promise<Catalog> {
    if (copy !== undefined) throw new CouchError('no_copies')
    await migrate(this.#connections)
    this.#catalog ??= await PostgresCatalog.open({
      connections: this.#connections,
      writes: this.#writes,
      now: this.#now,
      notices: this.#notices,
      memoryPath: this.#options.memoryPath ?? null,
    })
    this.#pendingDeletions.start()
    return this.#catalog
  }

  async openDatabase(name: string, options: OpenOptions = {}): Promise<VersionedStore> {
    let { incarnation } = options
    let wasRolledBack = false
    for (let tries = 0; tries < MAX_OPENINGS; tries++) {
      const { db, boot, row } = await this.#read(name)
      const [present, partitioned, shards, createdAt, updateSeq, isMoved, since, needsDevices, ...settings] =
        row
      if (incarnation !== undefined && present !== incarnation) throw new CouchError('no_database')
      const views = new DatabaseViews(this.#connections, [db, present], settings, this.#damageOf(name))
      const isBehind: boolean =
        options.lastKnown !== undefined &&
        !wasRolledBack &&
        isRolledBack({ epochs: views.settings.epochs, updateSeq }, options.lastKnown)
      wasRolledBack ||= isBehind
      if (isBehind || isMoved) {
        const restored = { name, db, incarnation: present }
        const restoration = await restoreDatabase(this.#writes, restored, this.#now()).catch(ofAnotherNode)
        incarnation = restoration?.incarnation
        if (restoration !== null) this.#notices.notify(db, restoration.position)
        this.#notices.notifyCatalog()
        this.#catalog?.hear([{ type: 'databases', names: [name] }])
        continue
      }
      const opening = { db, incarnation: present, since, boot }
      const beginEpoch = since === boot ? null : () => beginStartedEpoch(this.#writes, opening, this.#now())
      const facts = { partitioned, shards, createdAt, wasRolledBack, needsDevices }
      return this.#store({ ...facts, name, db, updateSeq, beginEpoch }, views)
    }
    throw new CouchError('store_unavailable')
  }

  #damageOf(name: string): DamageReports {
    return new DamageReports(name, {
      report: (error) => this.#options.onDamage?.(name, error),
      areDevicesAsked: true,
    })
  }

  /** @throws no_database */
  async #read(name: string): Promise<{ db: number; boot: string; row: OpenRow }> {
    const [db, boot] = await this.#find(name)
    const [row] = await this.#connections.read<OpenRow>({ ...OPEN, values: [db] })
    if (row === undefined) throw new CouchError('no_database')
    return { db, boot, row }
  }

  /** @throws no_database */
  async #find(name: string): Promise<readonly [db: number, boot: string]> {
    const values = [storedText(name)]
    const [found] = await this.#connections.read<[db: number, boot: string]>({ ...FIND, values })
    if (found === undefined) throw new CouchError('no_database')
    return found
  }

  #store(opened: OpenedDatabase, views: DatabaseViews): PostgresStore {
    const { name, db, updateSeq, ...facts } = opened
    const { settingsVersion } = views.settings
    const position = { updateSeq, settingsVersion }
    const events = new DatabaseEvents({
      views,
      position,
      notify: (changed) => this.#notices.notify(db, changed),
    })
    const unfollow = this.#notices.follow(db, views.key[1], events)
    const onClosed = () => {
      unfollow()
      this.#stores.delete(store)
      if (this.#numbers.get(name) === db) this.#numbers.delete(name)
    }
    const database = {
      name,
      db,
      connections: this.#connections,
      views,
      damage: this.#damageOf(name),
      leaves: new NotedLeaves({
        connections: this.#connections,
        views,
        now: this.#now,
        onNoted: () => this.#options.onDamagedLeaf?.(name),
        onRestored: (leaves, rest) => this.#options.onRestored?.(name, leaves, rest),
      }),
      rows: new DamagedRows(),
      opener: this.#opener,
      now: this.#now,
    }
    const parts = { ...facts, events, tally: this.#options.tally, onClosed }
    const store: PostgresStore = new PostgresStore(database, parts)
    this.#stores.add(store)
    this.#numbers.set(name, db)
    return store
  }

  openIndexes(name: string): IndexStores {
    const db = this.#numbers.get(name)
    if (db === undefined) throw new CouchError('no_database')
    return new PostgresIndexes({ db, connections: this.#connections, opener: this.#opener })
  }

  async retainedVersions(name: string): Promise<RetainedVersions | null> {
    const [db] = await this.#find(name)
    const values = [db]
    const [row] = await this.#connections.read<[number, number | null]>({ ...RETAINED, values })
    if (row === undefined) throw new CouchError('no_database')
    const [compactedAt, oldestRetained] = row
    return { oldestRetained, compactedAt }
  }

  async checkDatabase(name: string, from: CheckPosition | null, ms: number): Promise<CheckStep> {
    const [db] = await this.#find(name)
    const step = await checkStored({ connections: this.#connections, db }, from, ms)
    // The next compaction does it.
    if (step.damage?.parts.some(({ kind }) => kind === 'counters'))
      await this.#connections.write({ ...NOTE_UNCOUNTED, values: [db] })
    return step
  }

  /** Without PostgreSQL, what was remembered before is kept. */
  async #remember(): Promise<void> {
    const ending = this.#catalog?.remember().catch(() => undefined)
    await Promise.race([ending, rest(REMEMBER_MS, undefined, { ref: false })])
  }

  async close(): Promise<void> {
    await Promise.all([...this.#stores].map((store) => store.close()))
    this.#stores.clear()
    if (this.#options.memoryPath !== undefined) await this.#remember()
    await Promise.all([this.#pendingDeletions.close(), this.#notices.close()])
    await this.#connections.close()
  }
}

/** Another node has restored or deleted the database meanwhile: it is read again. @throws any other error */
function ofAnotherNode(error: unknown): null {
  if (error instanceof CouchError && error.code === 'no_database') return null
  throw error
}

interface OpenedDatabase {
  readonly name: string
  readonly db: number
  readonly partitioned: boolean
  readonly shards: number
  readonly createdAt: number
  readonly wasRolledBack: boolean
  readonly needsDevices: boolean
  readonly updateSeq: number
  readonly beginEpoch: (() => Promise<void>) | null
}
