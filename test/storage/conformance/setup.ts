/** How the conformance suite gets at an engine, and words that its files share. */
import { inspect } from 'node:util'
import type { Test } from 'tap'
import { CouchError, type ErrorName } from '../../../src/core/errors.ts'
import type { Catalog, DatabaseEntry } from '../../../src/storage/catalog.ts'
import type { DatabaseStore, Outcome } from '../../../src/storage/engine.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import type { EngineCopies, StorageEngine } from '../../../src/storage/storage-engine.ts'

export interface EngineOptions {
  /** To be called before every operation of the engine; what it throws stands for a fault of the disk there. */
  readonly onOperation?: (operation: string) => void
  /** The time, in ms since 1970; by default the clock's. */
  readonly now?: () => number
}

/** The contents that a database keeps, counted behind the engine's back. */
export interface KeptContents {
  readonly blobs: number
  readonly bytes: number
}

/** What a test damages: of a document its row, its text and what else it has, or what its name says. */
export type DamagedRow = 'row' | 'body' | 'ancestry' | 'attachment' | 'local' | 'content' | 'security'

export interface EngineUnderTest {
  readonly engine: StorageEngine
  /** What the database `notes` keeps, whether anything names it or not. */
  keptContents(): Promise<KeptContents>
  /** Of an engine with copies: copies the database `notes` as it stands, open or not. @returns the path */
  snapshot?(): Promise<string>
  /**
   * Of an engine with checksums: changes a stored row of the database `notes` behind the engine's back, as a disk may. Texts with
   * the word `true` have another word afterwards.
   * @param id of the document; of any for the security object
   */
  damage?(row: DamagedRow, id: string): Promise<void>
  /** Closes the engine and opens another over the same data. */
  reopen(): Promise<StorageEngine>
}

/** Makes an engine without data, and removes it with the test's teardown. */
export type MakeEngine = (t: Test, options?: EngineOptions) => Promise<EngineUnderTest>

/** Cases by the sentence that each of them checks. */
export type StorageCases = Record<string, (t: Test, makeEngine: MakeEngine) => Promise<void>>

export interface OpenStore {
  readonly engine: StorageEngine
  readonly catalog: Catalog
  /** A database named `notes`. */
  readonly store: VersionedStore
  keptContents(): Promise<KeptContents>
  snapshot(): Promise<string>
  /** null: the engine has no checksums. */
  readonly damage: EngineUnderTest['damage'] | null
  /** The engine after it was closed and opened again. */
  reopenEngine(): Promise<StorageEngine>
  /** The same database after the engine was closed and opened again. */
  reopen(): Promise<OpenStore>
}

/** An engine with one empty database that is open. */
export async function openNotes(
  t: Test,
  makeEngine: MakeEngine,
  options?: EngineOptions,
): Promise<OpenStore> {
  const { engine, reopen, keptContents, snapshot = noFiles, damage = null } = await makeEngine(t, options)
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const opened = async (from: StorageEngine, itsCatalog: Catalog): Promise<OpenStore> => ({
    engine: from,
    catalog: itsCatalog,
    store: await from.openDatabase('notes'),
    keptContents,
    snapshot,
    damage,
    reopenEngine: reopen,
    reopen: async () => {
      const again = await reopen()
      return opened(again, await again.openCatalog())
    },
  })
  return opened(engine, catalog)
}

/** Calls `listener` with the newest number after each commit that used sequence numbers. */
export function onCommit(store: DatabaseStore, listener: (updateSeq: number) => void): void {
  store.onEvent((event) => {
    if (event.type === 'committed') listener(event.updateSeq)
  })
}

function noFiles(): never {
  throw new Error('the engine has no files')
}

/** As {@link openNotes}, for cases about copies; null for an engine without them. */
export async function openWithCopies(
  t: Test,
  makeEngine: MakeEngine,
): Promise<(OpenStore & { readonly copies: EngineCopies }) | null> {
  const opened = await openNotes(t, makeEngine)
  const { copies } = opened.engine
  if (copies === null) t.pass('the engine makes no copies')
  return copies === null ? null : { ...opened, copies }
}

/** The result of an update that must have one. */
export function resultOf<R, N>(outcome: Outcome<R, N> | undefined): R {
  if (outcome === undefined || !('result' in outcome)) throw new Error(`no result but ${inspect(outcome)}`)
  return outcome.result
}

/** The only result of an update that was the only one of its call. */
export async function only<R, N>(outcomes: Promise<Outcome<R, N>[]>): Promise<R> {
  return resultOf((await outcomes)[0])
}

/** The error of an update; undefined when it had none. */
export function errorOf(outcome: Outcome<unknown, unknown> | undefined): unknown {
  return outcome !== undefined && 'error' in outcome ? outcome.error : undefined
}

/** Checks that a promise rejects with a row of the error table. */
export async function rejectsWith(t: Test, promise: Promise<unknown>, code: ErrorName): Promise<void> {
  const thrown: unknown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  )
  t.equal(thrown instanceof CouchError ? thrown.code : inspect(thrown), code)
}

/** Paging without an end that a test would reach. */
export const ALL = { limit: 1_000_000 }

/** All databases that a catalog lists, as it finds them. */
export async function entriesOf(catalog: Catalog): Promise<DatabaseEntry[]> {
  const names = await catalog.names({}, Number.MAX_SAFE_INTEGER)
  const entries = await Promise.all(names.map((name) => catalog.find(name)))
  return entries.filter((entry) => entry !== null)
}
