/** Fetches revisions with attachments, one by one, without ever holding a large one in memory. */
import { randomUUID } from 'node:crypto'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Body } from '../documents/database.ts'
import { headerParameter, MultipartScanner, type Part } from '../documents/multipart.ts'
import { type JsonPart, jsonParts, parsed, partsOf } from './json-parts.ts'
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
  const scanner = new MultipartScanner(boundary)
  const spool = new Spool(tmpDir)
  try {
    for await (const chunk of opened.chunks) {
      scanner.push(chunk)
      await spool.add(chunk)
    }
    const [part] = endOf(scanner)
    return await use(part === undefined ? { type: 'missing' } : await fetchedPart(part, spool))
  } finally {
    await spool.close()
  }
}

function endOf(scanner: MultipartScanner): readonly Part[] {
  try {
    return scanner.end()
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
  if (attachedBytes(found) === null) return { type: 'json', json: found }
  const complete = await revisionOf(
    await source.openRevs(id, [rev], { attsSince: [], isInline: true }, signal),
  )
  return complete === null ? { type: 'missing' } : { type: 'json', json: complete }
}

async function revisionOf({ chunks }: OpenedRevisions): Promise<Uint8Array | null> {
  let found: Uint8Array | null = null
  for await (const { bytes } of jsonParts(chunks)) {
    found ??= partsOf(bytes).find(({ member }) => member === 'ok')?.bytes ?? null
  }
  return found
}

const ATTACHMENTS = Buffer.from('"_attachments"')

/**
 * The attachments in the JSON of a document.
 * @returns the sum of their lengths in bytes, as far as the document has them; null without attachments
 * @throws PeerError
 */
export function attachedBytes(json: Buffer | Uint8Array): number | null {
  if (!Buffer.from(json.buffer, json.byteOffset, json.byteLength).includes(ATTACHMENTS)) return null
  const part = partsOf(json).find(({ member }) => member === '_attachments')
  const attachments = part === undefined ? [] : membersOf(part.bytes)
  if (attachments.length === 0) return null
  return attachments.reduce((sum, { bytes }) => sum + lengthIn(bytes), 0)
}

/** @returns none for a value that is no object, which the target refuses */
function membersOf(json: Uint8Array): readonly JsonPart[] {
  return json[0] === 0x7b ? partsOf(json) : []
}

function lengthIn(stub: Uint8Array): number {
  const length = membersOf(stub).find(({ member }) => member === 'length')
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
