/** Fetches revisions with attachments, one by one, without ever holding a large one in memory. */
import { randomUUID } from 'node:crypto'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Body } from '../documents/database.ts'
import { headerParameter, MultipartScanner, type Part } from '../documents/multipart.ts'
import { jsonParts, memberIn, parsed, partsIn, partsOf } from './json-parts.ts'
import type { MultipartRevision, OpenedRevisions, Peer } from './peer.ts'
import { PeerError } from './peer-error.ts'

/** A revision as its source sent it. */
export type FetchedRevision =
  | { readonly type: 'multipart'; readonly revision: MultipartRevision }
  | { readonly type: 'json'; readonly json: Uint8Array }
  /** The source lists the revision but does not have it any more. */
  | { readonly type: 'missing' }

interface Wanted {
  readonly id: string
  readonly rev: string
  /** Ancestors that the target has. */
  readonly ancestors: readonly string[]
}

/** A larger answer goes to a file. */
const MAX_IN_MEMORY = 256 * 1024

/**
 * Fetches a revision and uses it before its file is closed.
 * @param tmpDir for the file, which is unlinked at once and so is gone when the server dies
 * @throws PeerError; what `use` throws
 */
export async function withRevision<T>(
  source: Peer,
  { id, rev, ancestors }: Wanted,
  tmpDir: string,
  signal: AbortSignal,
  use: (found: FetchedRevision) => Promise<T>,
): Promise<T> {
  const opened = await source.openRevs(id, [rev], { attsSince: ancestors, isInline: false }, signal)
  const boundary = boundaryOf(opened.type, 'multipart/mixed')
  if (boundary === null) return use(await inlineRevision(source, id, rev, opened, signal))
  const scanner = scanning(() => new MultipartScanner(boundary))
  const spool = new Spool(tmpDir)
  try {
    for await (const chunk of opened.chunks) {
      scanning(() => scanner.push(chunk))
      await spool.add(chunk)
    }
    const [part] = scanning(() => scanner.end())
    return await use(part === undefined ? { type: 'missing' } : await fetchedPart(part, spool))
  } finally {
    await spool.close()
  }
}

/** @throws PeerError in place of what the scanner refuses */
function scanning<T>(step: () => T): T {
  try {
    return step()
  } catch (error) {
    throw new PeerError('invalid_answer', (error as Error).message, { cause: error })
  }
}

async function fetchedPart({ headers, start, end }: Part, spool: Spool): Promise<FetchedRevision> {
  const type = headers.get('content-type') ?? ''
  const boundary = boundaryOf(type, 'multipart/related')
  if (boundary !== null) return { type: 'multipart', revision: { body: spool.body, start, end, boundary } }
  if (headerParameter(type, 'error') === 'true') return { type: 'missing' }
  return { type: 'json', json: await spool.read(start, end) }
}

/** A source that answers with JSON: PouchDB's server does. */
async function inlineRevision(
  source: Peer,
  id: string,
  rev: string,
  opened: OpenedRevisions,
  signal: AbortSignal,
): Promise<FetchedRevision> {
  const found = await revisionOf(opened)
  if (found === null) return { type: 'missing' }
  if ((await attachedBytes(found)) === null) return { type: 'json', json: found }
  const complete = await revisionOf(
    await source.openRevs(id, [rev], { attsSince: [], isInline: true }, signal),
  )
  return complete === null ? { type: 'missing' } : { type: 'json', json: complete }
}

async function revisionOf({ chunks }: OpenedRevisions): Promise<Buffer | null> {
  let found: Buffer | null = null
  for await (const { bytes } of jsonParts(chunks)) {
    found ??= await memberIn(bytes, 'ok')
  }
  return found
}

const ATTACHMENTS = Buffer.from('"_attachments"')
/** More bytes are not searched at once. */
const SEARCHED = 1024 * 1024

/**
 * The attachments in the JSON of a document.
 * @returns the sum of their lengths in bytes, as far as the document has them; null without attachments
 * @throws PeerError
 */
export async function attachedBytes(json: Buffer): Promise<number | null> {
  if (json.length <= SEARCHED && !json.includes(ATTACHMENTS)) return null
  const attachments = await memberIn(json, '_attachments')
  let sum: number | null = null
  // Another value than an object is refused by the target.
  if (attachments?.[0] !== OPEN_OBJECT) return sum
  for await (const { bytes } of partsIn(attachments)) sum = (sum ?? 0) + lengthIn(bytes)
  return sum
}

const OPEN_OBJECT = 0x7b

function lengthIn(stub: Buffer): number {
  const length = stub[0] === OPEN_OBJECT ? partsOf(stub).find(({ member }) => member === 'length') : undefined
  return length === undefined ? 0 : Number(parsed(length.bytes)) || 0
}

function boundaryOf(type: string, media: string): string | null {
  return type.toLowerCase().startsWith(media) ? (headerParameter(type, 'boundary') ?? null) : null
}

/** The bytes of one answer, in memory or in an unlinked file. */
class Spool {
  readonly #tmpDir: string
  #chunks: Uint8Array[] = []
  #length = 0
  #file: FileHandle | null = null

  constructor(tmpDir: string) {
    this.#tmpDir = tmpDir
  }

  async add(chunk: Uint8Array): Promise<void> {
    this.#chunks.push(chunk)
    this.#length += chunk.length
    if (this.#file === null && this.#length <= MAX_IN_MEMORY) return
    this.#file ??= await this.#openFile()
    for (const each of this.#chunks) await this.#file.appendFile(each)
    this.#chunks = []
  }

  async #openFile(): Promise<FileHandle> {
    const path = join(this.#tmpDir, `replication-${randomUUID()}`)
    const file = await open(path, 'wx+', 0o600)
    await unlink(path)
    return file
  }

  get body(): Body {
    if (this.#file !== null) return { file: this.#file.fd, length: this.#length }
    this.#chunks = [Buffer.concat(this.#chunks)]
    return { bytes: this.#chunks[0] as Uint8Array }
  }

  async read(start: number, end: number): Promise<Uint8Array> {
    const { body } = this
    if ('bytes' in body) return body.bytes.subarray(start, end)
    const bytes = Buffer.alloc(end - start)
    await this.#file?.read(bytes, 0, bytes.length, start)
    return bytes
  }

  async close(): Promise<void> {
    await this.#file?.close()
  }
}
