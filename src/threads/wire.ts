/** What the HTTP thread and a database thread say to each other, and how it is packed. */
import type { MessagePort, TransferListItem, Worker } from 'node:worker_threads'
import type { ChangesSource } from '../changes/page.ts'
import { type ByteText, bytesOfText, byteText } from '../core/bytes.ts'
import { asCouchError, CouchError, type ErrorName } from '../core/errors.ts'
import { discard } from '../core/outgoing.ts'
import type { SecurityObject, Settings, Space } from '../core/types.ts'
import type { Database } from '../documents/database.ts'
import type { MassDeletion } from '../documents/time-machine/time-machine-calls.ts'
import type { FindSource } from '../query/find.ts'
import type { ViewSource } from '../query/views.ts'
import type { SandboxAccess, SandboxNotice } from '../sandbox/messages.ts'
import type { NamedMark, RecordWrite, UpdatesRange } from '../storage/catalog.ts'
import type { Mark } from '../storage/sequence.ts'
import type { CompactionProgress } from '../storage/upkeep.ts'

/** All that a database thread does for a database. */
export type ServedDatabase = Database & ChangesSource & ViewSource & FindSource

/** How each method answers: once, once with short bytes as texts, or in chunks that are pulled one by one. */
export const METHODS = {
  info: 'call',
  size: 'call',
  security: 'call',
  setSecurity: 'call',
  countDisallowed: 'call',
  exportLines: 'stream',
  revsLimit: 'call',
  setRevsLimit: 'call',
  compact: 'call',
  purge: 'call',
  purgedInfos: 'call',
  purgedInfosLimit: 'call',
  setPurgedInfosLimit: 'call',
  history: 'call',
  overwritten: 'call',
  version: 'stream',
  rewind: 'stream',
  open: 'text',
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
  revsDiff: 'text',
  missingRevs: 'text',
  allDocs: 'stream',
  allDocsQueries: 'stream',
  openAttachment: 'call',
  readAttachment: 'stream',
  putAttachment: 'call',
  removeAttachment: 'call',
  view: 'stream',
  viewQueries: 'stream',
  viewInfo: 'call',
  find: 'stream',
  explain: 'call',
  indexes: 'call',
  changes: 'call',
  readFilterBody: 'call',
} as const satisfies Readonly<Record<keyof ServedDatabase, 'call' | 'text' | 'stream'>>

/** To a database thread. `call` names the answer that belongs to it. */
export type Request =
  | {
      readonly type: 'call'
      readonly call: number
      readonly database: string
      readonly incarnation: number
      /** How far the database was before the server was started; undefined when it has been opened since. */
      readonly mark?: Mark | undefined
      readonly method: keyof ServedDatabase
      readonly args: readonly unknown[]
      /** Which of them is a body whose bytes are sent as a text; -1: none. */
      readonly textAt: number
    }
  /** The next chunk of a stream is wanted. */
  | { readonly type: 'next'; readonly call: number }
  | { readonly type: 'cancel'; readonly call: number }
  /** Closes a database that is about to be removed; what waits for it is refused. */
  | { readonly type: 'drop'; readonly call: number; readonly database: string }
  /** Makes of a copy what can take a database's place; for a thread that serves nobody. Answered with Prepared. */
  | { readonly type: 'prepare'; readonly call: number; readonly database: string; readonly copy: string }
  /** Keeps a database open until it is released; answered once it is. */
  | {
      readonly type: 'hold'
      readonly call: number
      readonly database: string
      readonly incarnation: number
      readonly mark?: Mark | undefined
    }
  /** `call` is that of the hold. */
  | { readonly type: 'release'; readonly call: number }
  /** Which open databases cannot be read? Answered with a list of names. */
  | { readonly type: 'check'; readonly call: number }
  /** Does a database that is not open keep bodies that were to be gone by now? Answered with a boolean. */
  | { readonly type: 'overdue'; readonly call: number; readonly database: string }
  | { readonly type: 'catalog'; readonly call: number; readonly act: CatalogAct }
  | { readonly type: 'settings'; readonly settings: Settings }
  | { readonly type: 'space'; readonly space: Space }
  /** How are you? Answered with ThreadStats (thread-stats.ts), ahead of all that waits. */
  | { readonly type: 'stats'; readonly call: number }
  | { readonly type: 'sandbox'; readonly notice: SandboxNotice }
  /** Shows by its arrival that the event loop turns (core/heartbeat.ts). */
  | { readonly type: 'ping' }
  | { readonly type: 'stop'; readonly call: number }

export type CatalogAct =
  | { readonly act: 'open'; readonly serverFile?: string }
  | { readonly act: 'create'; readonly name: string }
  | { readonly act: 'delete'; readonly name: string }
  | { readonly act: 'replace'; readonly name: string; readonly draft: string | null }
  | { readonly act: 'discard'; readonly name: string; readonly draft: string }
  | { readonly act: 'noteUpdated'; readonly names: readonly string[]; readonly marks: readonly NamedMark[] }
  | { readonly act: 'readUpdates'; readonly range: UpdatesRange; readonly limit: number }
  | { readonly act: 'readRecords'; readonly kind: string }
  | { readonly act: 'writeRecords'; readonly writes: readonly RecordWrite[] }
  | { readonly act: 'copy'; readonly path: string }

/** From a database thread. */
export type Reply =
  | { readonly type: 'answer'; readonly call: number; readonly value: unknown }
  | { readonly type: 'chunk'; readonly call: number; readonly chunk: Uint8Array }
  | { readonly type: 'end'; readonly call: number }
  | { readonly type: 'failed'; readonly call: number; readonly error: WireError }
  | {
      readonly type: 'committed'
      readonly incarnation: number
      readonly updateSeq: number
      /** That the newest number is of. */
      readonly epoch: string
    }
  /** A database's file was found to be put back by hand, and has begun anew. */
  | { readonly type: 'putBack'; readonly incarnation: number; readonly mark: Mark }
  | { readonly type: 'secured'; readonly incarnation: number; readonly security: SecurityObject }
  /** A database's file is damaged, or the disk has failed it. */
  | { readonly type: 'faulty'; readonly incarnation: number; readonly fault: WireError }
  /** A write has met the end of the disk. */
  | { readonly type: 'full' }
  /** Most of a database was deleted within a minute. */
  | { readonly type: 'alarm'; readonly incarnation: number; readonly found: MassDeletion }
  /** Functions of design documents wait for a thread to run on. */
  | { readonly type: 'sandbox' }
  /** How far a compaction is; null: it has ended, with its fault if it failed. */
  | {
      readonly type: 'compaction'
      readonly incarnation: number
      readonly progress: CompactionProgress | null
      readonly fault?: WireError
    }

/** Bytes of an answer that a reply brings and that wait for their reader from then on: core/outgoing.ts. */
export function outgoingIn(reply: Reply): number {
  if (reply.type === 'chunk') return reply.chunk.length
  if (reply.type !== 'answer' || typeof reply.value !== 'object' || reply.value === null) return 0
  return 'bytes' in reply.value && reply.value.bytes instanceof Uint8Array ? reply.value.bytes.length : 0
}

/** What a database thread starts with. */
export interface ThreadOptions {
  readonly dataDir: string
  readonly settings: Settings
  readonly space: Space
  /** Databases that one thread keeps open at the most. */
  readonly maxOpen: number
  readonly sandbox: SandboxAccess
  /** How much waits for readers: core/outgoing.ts. */
  readonly outgoing: SharedArrayBuffer
  /** How much of it is on its way from this thread; the thread's other end makes it. */
  readonly transit?: SharedArrayBuffer
  /** The thread's signs of life: core/heartbeat.ts. The thread's other end makes it. */
  readonly heartbeat?: SharedArrayBuffer
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
  #transfers: TransferListItem[] = []
  #isScheduled = false

  constructor(port: Pick<MessagePort | Worker, 'postMessage'>) {
    this.#port = port
  }

  /** @param transfers ports, and the memory of bytes that is handed over instead of being copied: {@link ownBytes} */
  post(message: Message, transfers: readonly TransferListItem[] = NONE): void {
    if (this.#messages.length === 0) this.#schedule()
    for (const transfer of transfers) this.#transfers.push(transfer)
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
    // The same memory may be in two messages, but must not be named twice.
    const transfers = this.#transfers.length > 0 ? [...new Set(this.#transfers)] : undefined
    this.#messages = []
    this.#transfers = []
    this.#port.postMessage(messages, transfers)
  }
}

const NONE: readonly TransferListItem[] = []

/** Longer bytes are handed over: a string is copied once in each thread. */
const TEXT_BYTES = 16 * 1024

/** The same value with short byte arrays as {@link ByteText}, at its top or one level below. */
export function shortBytesAsTexts(value: unknown): unknown {
  return withBytes(value, (bytes) => (bytes.length > TEXT_BYTES ? bytes : byteText(bytes)))
}

/** What a call is given, as it is sent: a short body as a text, other bytes to be handed over. */
export function packArgs(
  given: readonly unknown[],
  transfers: TransferListItem[],
): Pick<Extract<Request, { type: 'call' }>, 'args' | 'textAt'> {
  // Where it stands is told, not seen: what a user sends as JSON may look like anything.
  const textAt = given.findIndex(isShortBody)
  const args = given.map((arg, at) => (at === textAt ? shortBytesAsTexts(arg) : ownBytes(arg, transfers)))
  return { args, textAt }
}

function isShortBody(arg: unknown): boolean {
  if (typeof arg !== 'object' || arg === null || !('bytes' in arg)) return false
  return arg.bytes instanceof Uint8Array && arg.bytes.length <= TEXT_BYTES
}

/** What {@link packArgs} was given. */
export function unpackArgs({ args, textAt }: ReturnType<typeof packArgs>): readonly unknown[] {
  if (textAt < 0) return args
  const { bytes } = args[textAt] as { readonly bytes: ByteText }
  return args.with(textAt, { bytes: bytesOfText(bytes) })
}

/** Shorter bodies are left to the collector, in bytes. */
const LONG_BODY = 256 * 1024

/**
 * Gives back the memory of a long body when the call that it came with has ended: the collector left four of 8 MB at a
 * time. It does so after the answer is posted, which may share the memory.
 * @returns the call
 */
export function discardingBody<T>(given: readonly unknown[], call: Promise<T>): Promise<T> {
  const bytes = given.map(bytesIn).find(({ length }) => length > LONG_BODY)
  return bytes === undefined ? call : call.finally(() => setTimeout(discard, 1, bytes))
}

function bytesIn(arg: unknown): Uint8Array {
  const isBody = typeof arg === 'object' && arg !== null && 'bytes' in arg && arg.bytes instanceof Uint8Array
  return isBody ? (arg.bytes as Uint8Array) : NO_BYTES
}

const NO_BYTES = new Uint8Array(0)

/**
 * The same value with byte arrays that own their memory, at its top or one level below: only such can be handed
 * to another thread. Node's small Buffers share one pool. What is in lists, or deeper, is copied.
 * @param transfers takes what is to be handed over
 */
export function ownBytes(value: unknown, transfers: TransferListItem[]): unknown {
  return withBytes(value, (bytes) => {
    const own = owned(bytes)
    transfers.push(own.buffer as ArrayBuffer)
    return own
  })
}

/** Asked of all that is sent, and mostly in vain: so it makes nothing before it has found some. */
function withBytes(value: unknown, change: (bytes: Uint8Array) => unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  if (value instanceof Uint8Array) return change(value)
  let changed: Record<string, unknown> | undefined
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name]
    if (!(member instanceof Uint8Array)) continue
    changed ??= { ...value }
    changed[name] = change(member)
  }
  return changed ?? value
}

function owned(bytes: Uint8Array): Uint8Array {
  const isWhole = bytes.byteLength === bytes.buffer.byteLength && bytes.byteLength > 0
  // A plain Uint8Array in either case: a Buffer's class does not survive the post.
  return isWhole ? new Uint8Array(bytes.buffer) : Uint8Array.prototype.slice.call(bytes)
}
