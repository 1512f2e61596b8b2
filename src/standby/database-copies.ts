/** Copies one database of the primary: what is new of its documents, and with a full copy everything else. */
import { isDeepStrictEqual } from 'node:util'
import { COPYING_USER } from '../auth/accounts.ts'
import { CouchError } from '../core/errors.ts'
import type { SecurityObject } from '../core/types.ts'
import { leadingNumber } from '../replication/checkpoint.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { RemoteDatabase, RemoteDatabaseInfo } from '../replication/remote/remote-database.ts'
import type { Position } from '../replication/requests/replication-request.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import { epochOf } from './checkpoint-rule.ts'
import { DocumentCopy } from './document-copy.ts'
import { LocalDocuments, OwnEpochs } from './local-documents.ts'
import { PrimaryChangedError } from './primary.ts'
import { copyPurges, type PurgeCopyOptions } from './purge-copies.ts'
import type { FollowedDatabase, StandbyRecords } from './standby-records.ts'

interface DatabaseCopiesOptions extends PurgeCopyOptions {
  readonly records: StandbyRecords
}

/** `gone`: the primary does not have the database. */
export type CopyOutcome = 'same' | 'changed' | 'gone'

/** How often a long copy notes how far it has come, in ms. */
const NOTE_MS = 5000
/** How often a database some of whose revisions were refused is compared from its beginning, in ms. */
const RETRY_REFUSED_MS = 3_600_000
/** How often the meaning of a token is stored while the database changes all the time, in ms. */
const REMEMBER_MS = 60_000
const BEGINNING = 0

export class DatabaseCopies {
  readonly #options: DatabaseCopiesOptions
  readonly #epochs = new Map<string, OwnEpochs>()
  /** The last token of each database whose meaning here is stored. */
  readonly #remembered = new Map<string, { readonly token: Position; readonly at: number }>()
  readonly #startedAt = performance.now()
  /** When a database was last compared from its beginning, since some of it was refused. */
  readonly #retried = new Map<string, number>()
  /** Databases that are compared from their beginning the next time. */
  readonly #damaged = new Set<string>()

  constructor(options: DatabaseCopiesOptions) {
    this.#options = options
  }

  /** Compares a database from its beginning the next time: what is damaged here counts as missing then, and is copied again. */
  compareNext(name: string): void {
    this.#damaged.add(name)
  }

  /**
   * Copies a database up to the end of the primary's feed.
   * @param isFull also its security object, its limits and its `_local` documents
   * @throws PrimaryChangedError if it is another database than before; PeerError, CouchError
   */
  async copy(name: string, isFull: boolean, signal: AbortSignal): Promise<CopyOutcome> {
    const remote = this.#options.primary.server.database(name)
    const info = await infoOf(remote, signal)
    if (info === null) return 'gone'
    const before = await this.#known(name)
    if (before !== null) await this.#requireSame(name, before, info, signal)
    const database = await this.#prepare(name, before === null, info)
    const known = before && (await this.#copyPurges(database, remote, before, info, signal))
    const isSame = known !== null && info.updateSeq === known.seq
    if (known !== null) await this.#remember(name, info.updateSeq, isSame)
    const isDamaged = this.#damaged.has(name)
    if (isSame && !isFull && !isDamaged) return 'same'
    const isDeep = isFull || known === null
    if (isDeep) await applyRules(database, remote, signal)
    const locals = isDeep ? await this.#readLocals(name, remote, signal) : null
    this.#damaged.delete(name)
    try {
      const since = isDamaged ? BEGINNING : this.#since(name, known, isFull)
      const isDone = isSame && since === known.seq
      const copied = isDone ? null : await this.#copyDocuments(remote, info, since, signal)
      signal.throwIfAborted()
      await locals?.store(database, signal)
      if (copied === null) return 'same'
      if (known !== null && leadingNumber(copied.seq) < leadingNumber(known.seq)) throw wentBack(name)
      await this.#options.records.noteDatabase(name, copied)
      return 'changed'
    } catch (error) {
      if (isDamaged) this.#damaged.add(name)
      throw error
    } finally {
      await locals?.discard()
    }
  }

  /**
   * Sends documents of a copy back to the primary, whose disk has damaged them.
   * @returns how many revisions the primary has stored
   * @throws PeerError
   */
  async sendBack(name: string, ids: readonly string[], signal: AbortSignal): Promise<number> {
    const remote = this.#options.primary.server.database(name)
    const sent = { since: BEGINNING, docIds: ids, isSentBack: true }
    const copy = new DocumentCopy(this.#options, remote, sent, signal)
    await copy.run()
    return copy.written
  }

  /**
   * Removes a database that the primary no longer has, or has made anew. Its file is kept (docs/standby.md).
   * @throws as `Databases.delete`
   */
  async setAside(name: string): Promise<void> {
    const { databases, records, logger } = this.#options
    this.#epochs.delete(name)
    this.#remembered.delete(name)
    this.#retried.delete(name)
    this.#damaged.delete(name)
    if (await databases.has(name)) {
      await databases.delete(name, { isKept: true })
      logger.warn({ database: name }, 'the primary has deleted a database; the file of its copy is kept')
    }
    // After a crash in between, the database counts as new.
    await records.noteDatabase(name, null)
  }

  /** null: it is new here. */
  async #known(name: string): Promise<FollowedDatabase | null> {
    const { databases, records } = this.#options
    return (await databases.has(name)) ? (records.databases().get(name) ?? null) : null
  }

  /**
   * Remembers what the primary's token means here, so that devices go on from it after a promotion. It is called before
   * anything newer is copied, since a device would skip what was here before the token's number.
   * @param isSame whether everything up to the token is here; else it is remembered only once in a while, because the
   *   number that is remembered first counts
   */
  async #remember(name: string, token: Position, isSame: boolean): Promise<void> {
    const last = this.#remembered.get(name) ?? { token: null, at: this.#startedAt }
    if (last.token === token || !(isSame || performance.now() - last.at > REMEMBER_MS)) return
    const database = await this.#options.databases.get(name)
    const { update_seq } = await database.info(COPYING_USER)
    await database.rememberTokens([{ token: String(token), seq: leadingNumber(update_seq) }])
    this.#remembered.set(name, { token, at: performance.now() })
  }

  /** @throws PrimaryChangedError */
  async #requireSame(
    name: string,
    { instance, seq }: FollowedDatabase,
    { instanceStartTime, updateSeq }: RemoteDatabaseInfo,
    signal: AbortSignal,
  ): Promise<void> {
    if (instance !== instanceStartTime) {
      throw new PrimaryChangedError(`${name} was restored or made anew on the primary`)
    }
    if (leadingNumber(updateSeq) < leadingNumber(seq)) throw wentBack(name)
    // A start of the primary begins an epoch as well; only a token that it does not know shows that its file went back.
    if (leadingNumber(seq) === 0 || epochOf(updateSeq) === epochOf(seq)) return
    if (!(await this.#options.primary.knowsToken(name, String(seq), signal))) throw wentBack(name)
  }

  async #prepare(
    name: string,
    isNew: boolean,
    { isPartitioned, instanceStartTime: instance, purgeSeq }: RemoteDatabaseInfo,
  ): Promise<DatabaseHandle> {
    const { databases, records } = this.#options
    if (isNew) {
      if (!(await databases.has(name))) await databases.create(name, { partitioned: isPartitioned })
      // From now on it refuses the first checkpoint of a device that pushes.
      await (await databases.get(name)).copyLocals(COPYING_USER, [], [])
      // Before it has anything of the primary's database, so that another one is recognised later.
      await records.noteDatabase(name, {
        instance,
        seq: BEGINNING,
        purges: leadingNumber(purgeSeq),
        refused: 0,
      })
    }
    return await databases.get(name)
  }

  async #readLocals(
    name: string,
    remote: RemoteDatabase,
    signal: AbortSignal,
  ): Promise<LocalDocuments | null> {
    const { primary, files } = this.#options
    let epochs = this.#epochs.get(name)
    if (epochs === undefined) {
      epochs = new OwnEpochs((token) => primary.knowsToken(name, token, signal))
      this.#epochs.set(name, epochs)
    }
    return LocalDocuments.read(remote, epochs, files, signal)
  }

  #since(name: string, known: FollowedDatabase | null, isFull: boolean): Position {
    if (known === null) return BEGINNING
    const last = this.#retried.get(name) ?? Number.NEGATIVE_INFINITY
    if (known.refused === 0 || !isFull || performance.now() - last < RETRY_REFUSED_MS) return known.seq
    this.#retried.set(name, performance.now())
    return BEGINNING
  }

  async #copyDocuments(
    remote: RemoteDatabase,
    { instanceStartTime: instance, purgeSeq }: RemoteDatabaseInfo,
    since: Position,
    signal: AbortSignal,
  ): Promise<FollowedDatabase> {
    const { name } = remote
    const known = await this.#known(name)
    const before = since === BEGINNING ? 0 : (known?.refused ?? 0)
    const purges = leadingNumber(purgeSeq)
    const copy = new DocumentCopy(this.#options, remote, { since }, signal)
    const noted = () => ({ instance, seq: copy.reached, purges, refused: before + copy.refused })
    // A long copy goes on from there after a crash.
    const noting = setInterval(() => {
      if (leadingNumber(copy.reached) <= leadingNumber(known?.seq ?? BEGINNING)) return
      this.#options.records.noteDatabase(name, noted()).catch(() => undefined)
    }, NOTE_MS)
    try {
      await copy.run()
    } finally {
      clearInterval(noting)
    }
    return noted()
  }

  /** Repeats the purges since the last copy. */
  async #copyPurges(
    database: DatabaseHandle,
    remote: RemoteDatabase,
    known: FollowedDatabase,
    { purgeSeq }: RemoteDatabaseInfo,
    signal: AbortSignal,
  ): Promise<FollowedDatabase> {
    const { records, logger } = this.#options
    const count = leadingNumber(purgeSeq) - known.purges
    if (count <= 0) return known
    const lost = await copyPurges(this.#options, database, remote, count, signal)
    if (lost > 0) {
      logger.warn(
        { database: database.name, purges: lost },
        'the primary no longer knows what it has purged, so the standby keeps it',
      )
    }
    const noted = { ...known, purges: leadingNumber(purgeSeq) }
    await records.noteDatabase(database.name, noted)
    return noted
  }
}

/** @returns null if there is no such database @throws PeerError */
async function infoOf(remote: RemoteDatabase, signal: AbortSignal): Promise<RemoteDatabaseInfo | null> {
  try {
    return await remote.info(signal)
  } catch (error) {
    if (error instanceof PeerError && error.fault === 'not_found') return null
    throw error
  }
}

/** The security object and the limit of revisions. */
async function applyRules(
  database: DatabaseHandle,
  remote: RemoteDatabase,
  signal: AbortSignal,
): Promise<void> {
  const [security, limit] = [await remote.security(signal), await remote.revsLimit(signal)]
  if (limit !== null && limit !== (await database.revsLimit(COPYING_USER))) {
    await database.setRevsLimit(COPYING_USER, limit)
  }
  if (security === null || isDeepStrictEqual(security, await database.security())) return
  try {
    await database.setSecurity(COPYING_USER, security as SecurityObject)
  } catch (error) {
    // That of `_users` is fixed, unless a setting says otherwise.
    if (!(error instanceof CouchError && error.code === 'forbidden')) throw error
  }
}

function wentBack(name: string): PrimaryChangedError {
  return new PrimaryChangedError(`${name} went back to an earlier state on the primary`)
}
