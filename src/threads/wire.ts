/** What the HTTP thread and a database thread say to each other, and how it is packed. */
import { MessagePort, type TransferListItem, type Worker } from 'node:worker_threads'
import type { ChangesSource } from '../changes/page.ts'
import { asCouchError, CouchError, type ErrorName } from '../core/errors.ts'
import type { Limits, SecurityObject } from '../core/types.ts'
import type { Database } from '../documents/database.ts'
import type { ViewSource } from '../query/views.ts'
import type { SandboxAccess, SandboxNotice } from '../sandbox/messages.ts'
import type { UpdatesRange } from '../storage/catalog.ts'
import type { CompactionProgress } from '../storage/engine.ts'

/** All that a database thread does for a database. */
export type ServedDatabase = Database & ChangesSource & ViewSource

/** How each method answers: once, or in chunks that are pulled one by one. */
export const METHODS: Readonly<Record<keyof ServedDatabase, 'call' | 'stream'>> = {
  info: 'call',
  security: 'call',
  setSecurity: 'call',
  revsLimit: 'call',
  setRevsLimit: 'call',
  compact: 'call',
  purge: 'call',
  purgedInfos: 'call',
  purgedInfosLimit: 'call',
  setPurgedInfosLimit: 'call',
  open: 'call',
  openRevs: 'stream',
  openParts: 'call',
  openRevsMixed: 'stream',
  put: 'call',
  post: 'call',
  postForm: 'call',
  remove: 'call',
  copy: 'call',
  bulkDocs: 'stream',
  bulkGet: 'stream',
  bulkGetMixed: 'stream',
  revsDiff: 'call',
  missingRevs: 'call',
  allDocs: 'stream',
  allDocsQueries: 'stream',
  openAttachment: 'call',
  readAttachment: 'stream',
  putAttachment: 'call',
  removeAttachment: 'call',
  view: 'stream',
  viewQueries: 'stream',
  viewInfo: 'call',
  changes: 'call',
  readFilterBody: 'call',
}

/** To a database thread. `call` names the answer that belongs to it. */
export type Request =
  | {
      readonly type: 'call'
      readonly call: number
      readonly database: string
      readonly incarnation: number
      readonly method: keyof ServedDatabase
      readonly args: readonly unknown[]
    }
  /** The next chunk of a stream is wanted. */
  | { readonly type: 'next'; readonly call: number }
  | { readonly type: 'cancel'; readonly call: number }
  /** Closes a database that is about to be removed; what waits for it is refused. */
  | { readonly type: 'drop'; readonly call: number; readonly database: string }
  | { readonly type: 'catalog'; readonly call: number; readonly act: CatalogAct }
  | { readonly type: 'limits'; readonly limits: Limits }
  | { readonly type: 'sandbox'; readonly notice: SandboxNotice }
  | { readonly type: 'stop'; readonly call: number }

export type CatalogAct =
  | { readonly act: 'open' }
  | { readonly act: 'create'; readonly name: string }
  | { readonly act: 'delete'; readonly name: string }
  | { readonly act: 'noteUpdated'; readonly names: readonly string[] }
  | { readonly act: 'readUpdates'; readonly range: UpdatesRange; readonly limit: number }

/** From a database thread. */
export type Reply =
  | { readonly type: 'answer'; readonly call: number; readonly value: unknown }
  | { readonly type: 'chunk'; readonly call: number; readonly chunk: Uint8Array }
  | { readonly type: 'end'; readonly call: number }
  | { readonly type: 'failed'; readonly call: number; readonly error: WireError }
  | { readonly type: 'committed'; readonly incarnation: number; readonly updateSeq: number }
  | { readonly type: 'secured'; readonly incarnation: number; readonly security: SecurityObject }
  /** Functions of design documents wait for a thread to run on. */
  | { readonly type: 'sandbox' }
  /** How far a compaction is; null: it has ended, with its fault if it failed. */
  | {
      readonly type: 'compaction'
      readonly incarnation: number
      readonly progress: CompactionProgress | null
      readonly fault?: WireError
    }

/** What a database thread starts with. */
export interface ThreadOptions {
  readonly dataDir: string
  readonly limits: Limits
  /** Databases that one thread keeps open at the most. */
  readonly maxOpen: number
  readonly sandbox: SandboxAccess
}

export interface WireError {
  readonly code: ErrorName
  readonly reason: unknown
  /** The underlying error's stack, for the log. */
  readonly cause: string | undefined
}

export function packError(thrown: unknown): WireError {
  const { code, reason, cause } = asCouchError(thrown)
  const told = cause instanceof Error ? (cause.stack ?? cause.message) : cause
  return { code, reason, cause: told === undefined ? undefined : String(told) }
}

export function unpackError({ code, reason, cause }: WireError): CouchError {
  return new CouchError(code, reason, cause === undefined ? undefined : { cause })
}

/**
 * Gathers the messages of one turn of the event loop and posts them as one: a post costs more than what is in it.
 */
export class Outbox<Message extends object> {
  readonly #port: Pick<MessagePort | Worker, 'postMessage'>
  #messages: Message[] = []
  #transfers = new Set<ArrayBufferLike | MessagePort>()
  #isScheduled = false

  constructor(port: Pick<MessagePort | Worker, 'postMessage'>) {
    this.#port = port
  }

  /**
   * @param carriers ports, and what {@link ownBytes} made: its byte arrays are handed over instead of being copied
   */
  post(message: Message, ...carriers: unknown[]): void {
    if (this.#messages.length === 0) this.#schedule()
    for (const carrier of carriers) {
      if (carrier instanceof MessagePort) this.#transfers.add(carrier)
      for (const bytes of bytesIn(carrier)) this.#transfers.add(bytes.buffer)
    }
    this.#messages.push(message)
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.flush()
    })
  }

  /** Posts what was gathered so far. */
  flush(): void {
    if (this.#messages.length === 0) return
    const messages = this.#messages
    const transfers = [...this.#transfers] as TransferListItem[]
    this.#messages = []
    this.#transfers = new Set()
    this.#port.postMessage(messages, transfers)
  }
}

/**
 * The same value with byte arrays that own their memory, at its top or one level below: only such can be handed
 * to another thread. Node's small Buffers share one pool.
 */
export function ownBytes<T>(value: T): T {
  if (value instanceof Uint8Array) return owned(value) as T
  const names = byteMembers(value)
  if (names.length === 0) return value
  const members = value as Readonly<Record<string, Uint8Array>>
  return { ...value, ...Object.fromEntries(names.map((name) => [name, owned(members[name] as Uint8Array)])) }
}

/** The byte arrays that move with a value: itself, or members of an object. A list's are copied. */
function bytesIn(value: unknown): Uint8Array[] {
  if (value instanceof Uint8Array) return [value]
  return byteMembers(value).map((name) => (value as Readonly<Record<string, Uint8Array>>)[name] as Uint8Array)
}

/** Names of the members that are byte arrays. Asked of all that is sent, and mostly in vain: so without a list. */
function byteMembers(value: unknown): readonly string[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return NONE
  let names: string[] | undefined
  for (const name in value) {
    if (!((value as Readonly<Record<string, unknown>>)[name] instanceof Uint8Array)) continue
    names ??= []
    names.push(name)
  }
  return names ?? NONE
}

const NONE: readonly string[] = []

function owned(bytes: Uint8Array): Uint8Array {
  const isWhole = bytes.byteLength === bytes.buffer.byteLength && bytes.byteLength > 0
  // A plain Uint8Array in either case: a Buffer's class does not survive the post.
  return isWhole ? new Uint8Array(bytes.buffer) : Uint8Array.prototype.slice.call(bytes)
}
