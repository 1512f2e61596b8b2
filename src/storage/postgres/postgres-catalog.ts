/** The list of databases and the server's own data in PostgreSQL. Any number of nodes have it open at once. */
import { CouchError } from '../../core/errors.ts'
import { checkServerUuid } from '../../core/ids.ts'
import { Listeners } from '../../core/listeners.ts'
import type {
  Catalog,
  CatalogUpdates,
  DatabaseEntry,
  DatabaseProperties,
  DatabaseSequence,
  NameRange,
  Replaced,
  UpdatesRange,
} from '../catalog.ts'
import {
  type CatalogChange,
  changesOf,
  type RecordRange,
  type RecordWrite,
  type ServerRecord,
} from '../records.ts'
import { firstEpochs } from '../sequence.ts'
import type { CatalogWrites } from './catalog-writes.ts'
import type { Connections } from './connections.ts'
import { restoreDatabase } from './database-restoration.ts'
import type { Notices } from './notices.ts'
import type { Row } from './prepared-query.ts'
import { StoreMemory, type StorePosition } from './store-memory.ts'
import {
  listQuery,
  noteRecordChecksums,
  type RecordRow,
  readQuery,
  recordsOf,
  valuesOf,
  writeCall,
} from './stored-records.ts'
import { storedText } from './stored-text.ts'
import { renewMovedStore, renewStore, type UpdateRow, updatesOf, updatesQuery } from './stored-updates.ts'

const FIND = {
  name: 'find_database',
  text: 'SELECT db, incarnation, last_epoch, last_seq FROM entry WHERE name = $1',
}
const COUNT = { name: 'count_databases', text: 'SELECT databases FROM store' }
const NAMES = { name: 'list_names', text: namesText('ASC') }
const NAMES_DOWN = { name: 'list_names_down', text: namesText('DESC') }
const CREATE = {
  name: 'create_database',
  text: 'SELECT status, incarnation FROM create_sharded_database($1, $2, $3, $4, $5, $6, $7, $8)',
}
const DELETE = {
  name: 'delete_database',
  text: 'SELECT status, db FROM delete_database($1, $2, $3, $4, $5)',
}
const NOTE_UPDATED = {
  name: 'note_updated',
  text: 'SELECT note_updated($1, $2, $3, $4, $5, $6, $7)',
}
const ADOPT = {
  name: 'adopt_uuid',
  text: `WITH adopted AS (UPDATE store SET server_uuid = $1)
    INSERT INTO catalog_change (token, node, changes) VALUES ($2, $3, $4)`,
}
const UUIDS = { name: 'read_uuids', text: 'SELECT server_uuid, folder_uuid FROM store' }

/** Names of one call, so that the store's row is locked for some ms at most. */
const NOTED_NAMES = 250
/** Above every character of a legal name. */
const ABOVE = '\x7f'

type EntryRow = readonly [db: number, incarnation: number, lastEpoch: string | null, lastSeq: number | null]

function namesText(order: 'ASC' | 'DESC'): string {
  return `SELECT name FROM entry WHERE name >= $1 AND name < $2 ORDER BY name ${order} LIMIT $3`
}

interface PostgresCatalogOptions {
  readonly connections: Connections
  readonly writes: CatalogWrites
  readonly uuids: StoreUuids
  /** The time, in ms since 1970. */
  now(): number
  readonly notices: Pick<Notices, 'notify' | 'notifyCatalog' | 'followCatalog' | 'lookAgain'>
  /** How far the store was. */
  readonly memory: StoreMemory
}

interface StoreUuids {
  readonly serverUuid: string
  readonly folderUuid: string
}

export class PostgresCatalog implements Catalog {
  readonly #options: PostgresCatalogOptions
  #uuids: StoreUuids
  readonly #listeners = new Listeners<[CatalogChange]>()

  /** @throws the error of `storeFault` */
  static async open(
    opened: Omit<PostgresCatalogOptions, 'uuids' | 'memory'> & {
      /** The file of the node's folder that remembers how far the store was; null: none does. */
      readonly memoryPath: string | null
    },
  ): Promise<PostgresCatalog> {
    const options = { ...opened, memory: await StoreMemory.open(opened.memoryPath) }
    const { writes, memory, now } = options
    const renewal = { remembered: memory.position, isStart: true, now: now() }
    await writes.transaction([], (run) => renewStore(run, renewal))
    memory.forget()
    const [row] = await options.connections.read<[string, string]>({ ...UUIDS, values: [] })
    const [serverUuid, folderUuid] = row as [string, string]
    const catalog = new PostgresCatalog({ ...options, uuids: { serverUuid, folderUuid } })
    await options.notices.followCatalog(
      (changes) => catalog.hear(changes),
      (position) => catalog.#notePosition(position),
    )
    // What cannot be noted now is noted at the next start.
    noteRecordChecksums(options.connections).catch(() => undefined)
    return catalog
  }

  private constructor(options: PostgresCatalogOptions) {
    this.#options = options
    this.#uuids = options.uuids
  }

  /** Where the store is behind what was seen before, every database is restored. */
  async #notePosition(position: Omit<StorePosition, 'at'>): Promise<void> {
    const { memory, writes, now } = this.#options
    if (!memory.isAheadOf(position)) {
      memory.note({ ...position, at: now() })
      return
    }
    const renewal = { remembered: memory.position, isStart: false, now: now() }
    await writes.transaction([], (run) => renewStore(run, renewal))
    memory.forget()
    this.hear([{ type: 'any' }])
  }

  /** Remembers where the store is now. @throws as `Connections.read` */
  async remember(): Promise<void> {
    await this.#options.notices.lookAgain()
    await this.#options.memory.write()
  }

  get serverUuid(): string {
    return this.#uuids.serverUuid
  }

  get folderUuid(): string {
    return this.#uuids.folderUuid
  }

  async adoptUuid(uuid: string): Promise<void> {
    checkServerUuid(uuid)
    await this.#options.writes.call(ADOPT, [uuid], [{ type: 'uuid', uuid }])
    this.#uuids = { ...this.#uuids, serverUuid: uuid }
    this.#options.notices.notifyCatalog()
  }

  async find(name: string): Promise<DatabaseEntry | null> {
    const row = await this.#row(name)
    if (row === null) return null
    const [, incarnation, epoch, updateSeq] = row
    const lastKnown = epoch === null || updateSeq === null ? null : { epoch, updateSeq }
    return { name, incarnation, ...(lastKnown !== null && { lastKnown }) }
  }

  async #row(name: string): Promise<EntryRow | null> {
    const [row = null] = await this.#options.connections.read<EntryRow>({
      ...FIND,
      values: [storedText(name)],
    })
    return row
  }

  async names({ prefix = '', from, after, descending = false }: NameRange, limit: number): Promise<string[]> {
    const first = storedText(prefix)
    const stored = (bound: string | undefined) => (bound === undefined ? [] : [storedText(bound)])
    const [start, behind] = [stored(from), stored(after)]
    const low = descending ? first : largest([first, ...start, ...behind.map(next)])
    const below = descending ? smallest([first + ABOVE, ...start.map(next), ...behind]) : first + ABOVE
    const values = [low, below, Math.min(limit, Number.MAX_SAFE_INTEGER)]
    const rows = await this.#options.connections.read<[string]>({
      ...(descending ? NAMES_DOWN : NAMES),
      values,
    })
    return rows.map(([name]) => name)
  }

  async count(): Promise<number> {
    const [row] = await this.#options.connections.read<[number]>({ ...COUNT, values: [] })
    return row?.[0] ?? 0
  }

  /** The list is always complete. */
  async whenListed(): Promise<void> {}

  async create(
    name: string,
    { partitioned = false, shards = 1 }: DatabaseProperties = {},
  ): Promise<DatabaseEntry> {
    const epochs = firstEpochs(this.#options.now())
    const createdAt = Math.floor(this.#options.now() / 1000)
    const values = [shards, name, partitioned, createdAt, JSON.stringify(epochs)]
    const made = await this.#change<[status: string, incarnation: number]>(CREATE, values, [name])
    const [status, incarnation] = made ?? ['done', (await this.#row(name))?.[1]]
    if (status === 'exists') throw new CouchError('file_exists')
    // It was made, and has been deleted since.
    if (incarnation === undefined) throw new CouchError('store_unavailable')
    this.#changed(name)
    return { name, incarnation }
  }

  async delete(name: string): Promise<void> {
    const row = await this.#row(name)
    if (row === null) throw new CouchError('no_database')
    const [db, incarnation] = row
    const deleted = await this.#change<[status: string]>(DELETE, [name, incarnation], [name])
    if (deleted?.[0] === 'absent') throw new CouchError('no_database')
    this.#options.notices.notify(db, null)
    this.#changed(name)
  }

  async replace(name: string, draft: string | null): Promise<Replaced> {
    if (draft !== null) throw new CouchError('no_copies')
    const row = await this.#row(name)
    if (row === null) throw new CouchError('no_database')
    const [db, incarnation] = row
    const { writes, now } = this.#options
    const restored = await restoreDatabase(writes, { name, db, incarnation }, now())
    const entered = restored?.incarnation ?? (await this.#row(name))?.[1]
    if (entered === undefined) throw new CouchError('no_database')
    if (restored !== null) this.#options.notices.notify(db, restored.position)
    this.#changed(name)
    return { name, incarnation: entered, kept: null }
  }

  /** A database has no files that could be discarded. */
  async discard(): Promise<void> {}

  async noteUpdated(names: readonly string[], sequences: readonly DatabaseSequence[] = []): Promise<void> {
    const unique = [...new Set(names)]
    for (let at = 0; at < Math.max(unique.length, sequences.length); at += NOTED_NAMES) {
      const marks = sequences.slice(at, at + NOTED_NAMES)
      const values = [
        unique.slice(at, at + NOTED_NAMES).map(storedText),
        marks.map(({ name }) => storedText(name)),
        marks.map(({ epoch }) => epoch),
        marks.map(({ updateSeq }) => updateSeq),
      ]
      await this.#renewing(() =>
        this.#options.writes.call<[string]>(NOTE_UPDATED, values, [{ type: 'updates' }]),
      )
    }
    this.#options.notices.notifyCatalog()
  }

  async readUpdates(range: UpdatesRange, limit: number): Promise<CatalogUpdates> {
    return updatesOf(await this.#options.connections.read<UpdateRow>(updatesQuery(range, limit)))
  }

  async readRecords(kind: string, keys: readonly string[]): Promise<(string | null)[]> {
    if (keys.length === 0) return []
    return valuesOf(kind, await this.#options.connections.read<RecordRow>(readQuery(kind, keys)), keys)
  }

  async listRecords(kind: string, range: RecordRange, limit: number): Promise<ServerRecord[]> {
    return recordsOf(kind, await this.#options.connections.read<RecordRow>(listQuery(kind, range, limit)))
  }

  async writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    if (writes.length === 0) return true
    const call = writeCall(writes)
    if (call === null) return false
    const changes = changesOf(writes)
    const row = await this.#options.writes.call<[isDone: boolean]>(call.statement, call.values, changes)
    if (row?.[0] === false) return false
    for (const change of changes) this.#listeners.tell(change)
    this.#options.notices.notifyCatalog()
    return true
  }

  watch(listener: (change: CatalogChange) => void): () => void {
    return this.#listeners.add(listener)
  }

  /** Tells the listeners of what other nodes have changed. */
  hear(changes: readonly CatalogChange[]): void {
    for (const change of changes) {
      if (change.type === 'uuid') this.#uuids = { ...this.#uuids, serverUuid: change.uuid }
      // Until it is read, clients see the uuid of before. A store that cannot be reached is asked again with the next `any`.
      if (change.type === 'any') this.#readUuid().catch(() => undefined)
      this.#listeners.tell(change)
    }
  }

  async #readUuid(): Promise<void> {
    const [row] = await this.#options.connections.read<[string]>({ ...UUIDS, values: [], isBackground: true })
    if (row !== undefined && row[0] !== this.serverUuid) this.hear([{ type: 'uuid', uuid: row[0] }])
  }

  /** Calls a function that changes databases. */
  #change<R extends Row>(
    statement: { readonly name: string; readonly text: string },
    values: readonly unknown[],
    names: readonly string[],
  ): Promise<R | null> {
    const changes: CatalogChange[] = [{ type: 'databases', names }]
    return this.#renewing(() => this.#options.writes.call<R>(statement, values, changes))
  }

  /** Begins an epoch of the updates first where the timeline has changed. */
  async #renewing<R extends Row>(call: () => Promise<R | null>): Promise<R | null> {
    const row = await call()
    if (row?.[0] !== 'timeline') return row
    await this.#options.writes.transaction([], renewMovedStore(this.#options.now()))
    return call()
  }

  #changed(name: string): void {
    this.#listeners.tell({ type: 'databases', names: [name] })
    this.#options.notices.notifyCatalog()
  }
}

/** The first stored text after another. */
function next(stored: string): string {
  return `${stored}\x01`
}

function largest(texts: readonly string[]): string {
  return texts.reduce((a, b) => (a > b ? a : b))
}

function smallest(texts: readonly string[]): string {
  return texts.reduce((a, b) => (a < b ? a : b))
}
