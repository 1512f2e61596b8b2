/** Fetches revisions with attachments, one by one, without ever holding a large one in memory. */
import { share } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { type BodyCollector, bytesOf } from '../documents/body-collector.ts'
import { headerParameter, MultipartScanner, type Part } from '../documents/multipart.ts'
import type { Intake } from './intake.ts'
import { jsonParts, memberIn, parsed, partsIn, partsOf, TOO_LONG } from './json-parts.ts'
import type { MultipartRevision, OpenedRevisions, Peer } from './peer.ts'
import { faultOf, PeerError } from './peer-error.ts'

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

/**
 * Fetches a revision and uses it before its file is closed.
 * @throws PeerError, among them too_large for a revision beyond the bounds of `intake`; what `use` throws
 */
export async function withRevision<T>(
  source: Peer,
  wanted: Wanted,
  intake: Intake,
  signal: AbortSignal,
  use: (found: FetchedRevision) => Promise<T>,
): Promise<T> {
  const { id, rev, ancestors } = wanted
  const opened = await source.openRevs(id, [rev], { attsSince: ancestors, isInline: false }, signal)
  const boundary = boundaryOf(opened.type, 'multipart/mixed')
  if (boundary === null) return use(await inlineRevision(source, wanted, opened, intake, signal))
  const scanner = taking(() => new MultipartScanner(boundary))
  const collector = await intake.collector()
  try {
    for await (const chunk of opened.chunks) {
      if (collector.length + chunk.length > intake.maxRevision) throw tooLarge(intake.maxRevision)
      taking(() => scanner.push(chunk))
      // A peer may still read it.
      share(chunk, 2)
      await taking(() => collector.add(chunk))
    }
    const [part] = taking(() => scanner.end())
    return await use(part === undefined ? { type: 'missing' } : await fetchedPart(part, collector, intake))
  } finally {
    await collector.close()
  }
}

/** @throws PeerError in place of what the scanner and the collector refuse */
function taking<T>(step: () => T): T {
  try {
    const result = step()
    return result instanceof Promise ? (result.catch(refused) as T) : result
  } catch (error) {
    return refused(error)
  }
}

function refused(error: unknown): never {
  if (!(error instanceof CouchError)) throw error
  const fault = error.code === 'bad_request' ? 'invalid_answer' : faultOf(error.code)
  throw new PeerError(fault, error.message, { cause: error })
}

function tooLarge(bytes: number): PeerError {
  return new PeerError('too_large', `the revision has more than ${bytes} bytes`)
}

async function fetchedPart(
  { headers, start, end }: Part,
  collector: BodyCollector,
  intake: Intake,
): Promise<FetchedRevision> {
  const type = headers.get('content-type') ?? ''
  const boundary = boundaryOf(type, 'multipart/related')
  const body = collector.finish()
  if (boundary !== null) return { type: 'multipart', revision: { body, start, end, boundary } }
  if (headerParameter(type, 'error') === 'true') return { type: 'missing' }
  if (end - start > intake.maxDocument) throw tooLarge(intake.maxDocument)
  return { type: 'json', json: await bytesOf(body, start, end) }
}

/** The most bytes of a revision with its attachments as base64. */
const MAX_INLINE = 128 * 1024 * 1024

/** A source that answers with JSON: PouchDB's server does. */
async function inlineRevision(
  source: Peer,
  { id, rev }: Wanted,
  opened: OpenedRevisions,
  { maxDocument }: Intake,
  signal: AbortSignal,
): Promise<FetchedRevision> {
  const found = await revisionOf(opened, maxDocument)
  if (found === null) return { type: 'missing' }
  if ((await attachedBytes(found)) === null) return { type: 'json', json: found }
  const complete = await revisionOf(
    await source.openRevs(id, [rev], { attsSince: [], isInline: true }, signal),
    MAX_INLINE,
  )
  return complete === null ? { type: 'missing' } : { type: 'json', json: complete }
}

/** @throws PeerError, too_large beyond `most` bytes */
async function revisionOf({ chunks }: OpenedRevisions, most: number): Promise<Buffer | null> {
  let found: Buffer | null = null
  for await (const { bytes } of jsonParts(chunks, { skipsAbove: most, maxPart: MAX_INLINE })) {
    if (bytes === TOO_LONG) throw tooLarge(most)
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
