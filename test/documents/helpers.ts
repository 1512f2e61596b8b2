/** A database over the engine in memory, with helpers for tests. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import {
  DEFAULT_LIMITS,
  DEFAULT_RULES,
  type Limits,
  type Rules,
  type SecurityObject,
  type UserCtx,
} from '../../src/core/types.ts'
import type { Body, Database, PutOptions } from '../../src/documents/database.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import { AMPLE_ROOM, TemporaryFile } from '../../src/documents/temporary-file.ts'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import type { DatabaseProperties } from '../../src/storage/catalog.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import type { StorageEngine } from '../../src/storage/storage-engine.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { type MemoryEngineOptions, memoryEngine } from '../helpers/memory-engine.ts'

export const ADMIN: UserCtx = { name: 'root', roles: ['_admin'] }
export const ANNA: UserCtx = { name: 'anna', roles: [] }
export const NOBODY: UserCtx = { name: null, roles: [] }

// biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
export type Json = any

export interface Opened {
  readonly database: Database
  readonly store: VersionedStore
  /** The security objects that the database reported. */
  readonly secured: SecurityObject[]
  put(id: string, doc: unknown, options?: PutOptions): Promise<string>
  /** Reads a document with these options. @throws the refusal */
  get(id: string, options?: Parameters<Database['open']>[2]): Promise<Json>
  bulk(request: unknown): Promise<Json>
  /** Stores revisions with their ids: `_revisions` from ids, newest first. */
  replicate(id: string, ...paths: Path[]): Promise<Json>
  updateSeq(): Promise<number>
}

/** A revision with its ancestors, newest first. */
export interface Path {
  readonly start: number
  readonly ids: readonly string[]
  readonly deleted?: boolean
  readonly doc?: Record<string, unknown>
}

/** An empty database. */
export async function openDatabase(
  limits: Partial<Limits> = {},
  options: MemoryEngineOptions = {},
  sandbox: Sandbox = localSandbox(),
): Promise<Opened> {
  return openOn(memoryEngine(options), limits, sandbox, options.now)
}

/** An empty partitioned database. */
export async function openPartitioned(): Promise<Opened> {
  return openOn(memoryEngine(), {}, localSandbox(), Date.now, {}, { partitioned: true })
}

/** An empty database over an engine without databases. */
export async function openOn(
  engine: StorageEngine,
  limits: Partial<Limits> = {},
  sandbox: Sandbox = localSandbox(),
  now: () => number = Date.now,
  rules: Partial<Rules> = {},
  properties: DatabaseProperties = {},
): Promise<Opened> {
  const { incarnation } = await (await engine.openCatalog()).create('notes', properties)
  const store = await engine.openDatabase('notes')
  const secured: SecurityObject[] = []
  const database = storeDatabase(store, {
    name: 'notes',
    limits: () => ({ ...DEFAULT_LIMITS, ...limits }),
    rules: () => ({ ...DEFAULT_RULES, ...rules }),
    onSecured: (security) => secured.push(security),
    sandbox,
    incarnation,
    startCompaction: async () => void store.compact(),
    now,
  })
  const bulk = async (request: unknown) => JSON.parse(await text(database.bulkDocs(ADMIN, body(request))))
  return {
    database,
    store,
    secured,
    bulk,
    put: async (id, doc, given = {}) => (await database.put(ADMIN, id, body(doc), given)).rev,
    get: async (id, given = {}) => parse((await database.open(ADMIN, id, given)).json),
    replicate: (id, ...paths) => bulk({ new_edits: false, docs: paths.map((path) => replicated(id, path)) }),
    updateSeq: async () => (await store.view()).updateSeq,
  }
}

/** A document as a replicator sends it. */
export function replicated(id: string, { start, ids, deleted, doc }: Path): Record<string, unknown> {
  return { _id: id, _revisions: { start, ids }, ...(deleted && { _deleted: true }), ...doc }
}

/** A request's body in memory: text unchanged, anything else as JSON. */
export function body(value: unknown): Body {
  return { bytes: Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)) }
}

/** The same body in a file, like a large body. */
export async function spooled(t: Pick<Test, 'teardown'>, value: Uint8Array | string): Promise<Body> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-spool-'))
  t.teardown(() => rm(folder, { recursive: true }))
  const file = await TemporaryFile.open(folder, AMPLE_ROOM)
  t.teardown(() => file.close())
  await file.append(Buffer.from(value))
  return file.body
}

export async function chunksOf(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return chunks
}

export async function text(stream: AsyncIterable<Uint8Array>): Promise<string> {
  return Buffer.concat(await chunksOf(stream)).toString()
}

export function parse(bytes: Uint8Array): Json {
  return JSON.parse(Buffer.from(bytes).toString())
}

/** The answer of a streamed call as JSON. */
export async function jsonOf(stream: AsyncIterable<Uint8Array>): Promise<Json> {
  return JSON.parse(await text(stream))
}
