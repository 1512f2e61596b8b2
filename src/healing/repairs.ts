/**
 * Stores damaged revisions again, of which a copy of the database has a good one (threads/good-copies.ts). The write is that of a
 * replication, so whatever a client may see of it is what a client sees when a device sends the revision again.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import { COPYING_USER } from '../auth/accounts.ts'
import type { CopyPlace, StoredCopy } from '../backup/copy-place.ts'
import { Limiter } from '../core/concurrency.ts'
import { asCouchError, CouchError, isDamage } from '../core/errors.ts'
import { newUuid } from '../core/ids.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import { TemporaryFile } from '../documents/temporary-file.ts'
import type { DamagedPart } from '../storage/damage.ts'
import type { DamagedLeaf } from '../storage/engine.ts'
import type { Checker } from '../threads/copies.ts'
import type { Databases } from '../threads/databases.ts'
import type { FoundContent, FoundRevision } from '../threads/good-copies.ts'
import { throughReplacement } from './replaced.ts'

/** Bytes of a content that are in memory at once. */
const PIECE = 1024 * 1024
/** Pause between two revisions, in ms: a disk that fails has other work. */
const PAUSE_MS = 20
/** How long one revision may take to be found, in ms. A disk that never answers must not keep everything else damaged. */
const MAX_FIND_MS = 10 * 60_000
/** How many leaves of one database are repaired at one time. */
const MAX_LEAVES = 1000

interface RepairsOptions {
  readonly databases: Pick<Databases, 'checks' | 'copies' | 'get' | 'has' | 'names'>
  /** The first that has a good copy gives it. */
  readonly places: readonly CopyPlace[]
  readonly files: BodyFiles
  readonly logger: Pick<Logger, 'info' | 'warn'>
  /** By default {@link MAX_FIND_MS}. For tests. */
  readonly maxFindMs?: number
}

/** What became of a damaged part. */
export interface PartOutcome {
  readonly part: DamagedPart
  /** Where a good copy is, for people; null: in no place that the server can read. */
  readonly copy: string | null
  readonly isRepaired: boolean
  /** Why a good copy could not be stored. */
  readonly fault?: string
}

interface Found {
  readonly revision: FoundRevision
  /** For people. */
  readonly from: string
}

const OWN = 'the database itself'

/** In how many other databases a content is sought, and how many are opened for that in one run: each takes some ms of its thread. */
const MAX_OTHERS = 100
const MAX_OPENINGS = 1000

export class Repairs {
  readonly #options: RepairsOptions
  /** One database at a time, with one thread. */
  readonly #turns = new Limiter(1, Number.POSITIVE_INFINITY)
  readonly #ending = new AbortController()
  /** Called when leaves of a database were repaired that a reader has found. */
  onRepaired: (database: string) => void = () => undefined

  constructor(options: RepairsOptions) {
    this.#options = options
  }

  /** Whether the engine has files, of which there may be copies. */
  get isSupported(): boolean {
    return this.#options.databases.copies !== null
  }

  /**
   * Looks for good copies of damaged parts.
   * @param writes whether what is found is stored
   * @returns an outcome for each part, in their order. Never rejects
   */
  async run(
    database: string,
    parts: readonly DamagedPart[],
    { writes }: { readonly writes: boolean },
  ): Promise<PartOutcome[]> {
    const nothing = parts.map((part) => ({ part, copy: null, isRepaired: false }))
    if (!this.isSupported || !parts.some(isRevision)) return nothing
    return this.#turns.run(async () => {
      const run = new RepairRun(this.#options, database, writes, this.#ending.signal)
      try {
        return await run.all(parts)
      } catch (error) {
        // For example, the database was deleted.
        const fault = asCouchError(error).message
        return nothing.map((outcome) => ({ ...outcome, fault }))
      } finally {
        run.close()
      }
    })
  }

  /** The leaves that readers have found damaged; null if the engine does not list them, or cannot now. Never rejects. */
  async damagedLeaves(database: string): Promise<readonly DamagedLeaf[] | null> {
    if (!this.isSupported) return null
    // A database that cannot be opened fails only when it is used.
    return this.#options.databases
      .get(database)
      .then((handle) => handle.damagedLeaves())
      .catch(() => null)
  }

  /**
   * Repairs the leaves that readers have found damaged.
   * @returns whether all of them are whole. Never rejects
   */
  async repairLeaves(database: string): Promise<boolean> {
    const leaves = await this.damagedLeaves(database)
    if (leaves === null) return false
    const parts = leaves.slice(0, MAX_LEAVES).map(({ id, rev }) => ({ kind: 'revision', id, rev }) as const)
    const outcomes = await this.run(database, parts, { writes: true })
    const repaired = outcomes.filter(({ isRepaired }) => isRepaired).length
    if (repaired > 0) this.onRepaired(database)
    return repaired === leaves.length
  }

  /** No repair begins from now on. Resolves when the one under way has ended, or is given up. */
  async close(): Promise<void> {
    this.#ending.abort()
    await this.#turns.run(async () => undefined)
  }
}

/** A part that is stored as one revision; the damage of a document's row is mended by a write of its winner. */
type RevisionPart = Exclude<
  DamagedPart,
  { readonly kind: 'security' | 'counters' | 'purges' | 'index' | 'file' }
> & {
  readonly id: string
}

function isRevision(part: DamagedPart): part is RevisionPart {
  return 'id' in part && part.id !== null && part.kind !== 'local'
}

/** The parts of one database. */
class RepairRun {
  readonly #options: RepairsOptions
  readonly #database: string
  readonly #writes: boolean
  readonly #ending: AbortSignal
  readonly #checker: Checker
  /** Outcomes by document and revision: several attachments may be of one. */
  readonly #known = new Map<string, Promise<Omit<PartOutcome, 'part'>>>()
  #copies: readonly StoredCopy[] = []
  #others: readonly string[] | undefined
  #openings = 0

  constructor(options: RepairsOptions, database: string, writes: boolean, ending: AbortSignal) {
    this.#options = options
    this.#database = database
    this.#writes = writes
    this.#ending = ending
    this.#checker = options.databases.checks.start()
  }

  /** @throws no_database; unavailable when the server stops, or a disk does not answer */
  async all(parts: readonly DamagedPart[]): Promise<PartOutcome[]> {
    this.#copies = await this.#timed(this.#copiesOf())
    const outcomes: PartOutcome[] = []
    let fault: string | null = null
    for (const part of parts) {
      if (fault !== null) {
        outcomes.push({ part, copy: null, isRepaired: false, fault })
        continue
      }
      const outcome = await this.#one(part).catch((error: unknown) => {
        // The database is gone, or a disk does not answer: so it is for the others.
        fault = asCouchError(error).message
        return { copy: null, isRepaired: false, fault }
      })
      outcomes.push({ part, ...outcome })
      await delay(PAUSE_MS, undefined, { signal: this.#ending }).catch(() => undefined)
    }
    return outcomes
  }

  async #copiesOf(): Promise<readonly StoredCopy[]> {
    const found = this.#options.places.map((place) => place.copiesOf(this.#database).catch(() => []))
    return (await Promise.all(found)).flat()
  }

  #one(part: DamagedPart): Promise<Omit<PartOutcome, 'part'>> {
    if (!isRevision(part)) return Promise.resolve({ copy: null, isRepaired: false })
    const rev = 'rev' in part ? part.rev : null
    const { databases } = this.#options
    const key = JSON.stringify([part.id, rev])
    const repair = () => throughReplacement(databases, this.#database, () => this.#revision(part.id, rev))
    const outcome = this.#known.get(key) ?? repair()
    this.#known.set(key, outcome)
    return outcome
  }

  async #revision(id: string, rev: string | null): Promise<Omit<PartOutcome, 'part'>> {
    const { logger } = this.#options
    const found = await this.#find(id, rev)
    if (found === null) return { copy: null, isRepaired: false }
    const copy = found.from
    if (!this.#writes) return { copy, isRepaired: false }
    const facts = { database: this.#database, id, rev, from: copy }
    try {
      await this.#store(id, found.revision)
      logger.info(facts, 'restored a damaged revision from a good copy')
      return { copy, isRepaired: true }
    } catch (error) {
      if (error instanceof CouchError && error.code === 'no_database') throw error
      logger.warn({ ...facts, err: error }, 'could not store a good copy of a damaged revision')
      return { copy, isRepaired: false, fault: asCouchError(error).message }
    }
  }

  async #find(id: string, rev: string | null): Promise<Found | null> {
    const copies = this.#copies.map(({ path }) => path)
    const revision = await this.#timed(this.#checker.find({ database: this.#database, id, rev, copies }))
    if (revision === null) return null
    let from = this.#copies.find(({ path }) => path === revision.copy)?.name ?? OWN
    const contents: FoundContent[] = []
    for (const content of revision.contents) {
      if (content.place !== null) {
        contents.push(content)
        continue
      }
      const found = await this.#inOthers(content)
      if (found === null) return null
      const { database, blob } = found
      contents.push({ ...content, place: { database }, blob })
      from = `the database ${database}`
    }
    return { revision: { ...revision, contents }, from }
  }

  /** Looks for a content in other databases: a note may have been copied there, or a device has put the same file into two. */
  async #inOthers(
    content: FoundContent,
  ): Promise<{ readonly database: string; readonly blob: number } | null> {
    this.#others ??= await this.#options.databases.names({}, MAX_OTHERS)
    for (const database of this.#others) {
      if (database === this.#database) continue
      if (this.#openings >= MAX_OPENINGS) return null
      this.#openings += 1
      // It may be damaged as well, or gone.
      const sought = this.#checker.findContent(database, content).catch(() => null)
      const blob = await this.#timed(sought)
      if (blob !== null) return { database, blob }
    }
    return null
  }

  /** @throws unavailable after the time limit, or when the server stops */
  async #timed<T>(work: Promise<T>): Promise<T> {
    const ended = new AbortController()
    const limit = delay(this.#options.maxFindMs ?? MAX_FIND_MS, undefined, {
      signal: AbortSignal.any([ended.signal, this.#ending]),
    })
    const late = limit.then(
      () => Promise.reject(new CouchError('unavailable', 'A disk with copies does not answer.')),
      () => Promise.reject(new CouchError('unavailable')),
    )
    late.catch(() => undefined)
    work.catch(() => undefined)
    try {
      return await Promise.race([work, late])
    } finally {
      ended.abort()
    }
  }

  async #store(id: string, revision: FoundRevision): Promise<void> {
    const { databases, files } = this.#options
    const file = await TemporaryFile.open(files.folder, files.allocation('repairs', COPYING_USER))
    try {
      const boundary = newUuid()
      for await (const piece of this.#multipart(revision, boundary)) await file.append(piece)
      const database = await databases.get(this.#database)
      const put = () =>
        database.put(COPYING_USER, id, file.body, { newEdits: false, isRepair: true, boundary })
      // The first time, an ancestry that nobody has read is found damaged.
      await put().catch((error: unknown) => {
        if (!isDamage(error)) throw error
        return put()
      })
    } finally {
      await file.close()
    }
  }

  /** The body of a multipart/related request; protocol.md 7.2. */
  async *#multipart({ json, contents }: FoundRevision, boundary: string): AsyncGenerator<Uint8Array> {
    const line = (text: string) => Buffer.from(text, 'latin1')
    yield line(`--${boundary}\r\ncontent-type: application/json\r\n\r\n`)
    yield json
    for (const content of contents) {
      yield line(`\r\n--${boundary}\r\n\r\n`)
      yield* this.#piecesOf(content)
    }
    yield line(`\r\n--${boundary}--`)
  }

  async *#piecesOf({ place, blob, length }: FoundContent): AsyncGenerator<Uint8Array> {
    if (place === null) throw new CouchError('no_attachment')
    for (let offset = 0; offset < length; offset += PIECE) {
      const piece = { place, blob, offset, length: Math.min(PIECE, length - offset) }
      const open = 'database' in place ? place.database : this.#database
      yield await this.#timed(this.#checker.readPiece(open, piece))
    }
  }

  /** Does not wait for the thread: a disk that does not answer keeps it. */
  close(): void {
    void this.#checker.close()
  }
}
