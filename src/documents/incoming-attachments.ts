/** Reads the attachments in a client's document: checks them and decodes inline contents (protocol.md 7). */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createGzip } from 'node:zlib'
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { CompressionRules, Limits, Settings } from '../core/types.ts'
import type { AttachmentEncoding, AttachmentWrite } from '../storage/engine.ts'
import { memberValue, splitInSteps } from './body.ts'
import { type ContentText, type LeftContents, stringSteps } from './left-contents.ts'

/** Matches an invalid character: an expression for valid ones overflows the stack at 8 MB. */
const NOT_BASE64 = /[^A-Za-z0-9+/]/
/** Bytes hashed in one step, which takes about 2 ms. */
const HASH_STEP = 768 * 1024

/** An attachment's content: its bytes, or the name of an upload or a stored blob. */
export type IncomingContent = Pick<
  AttachmentWrite,
  'digest' | 'length' | 'encoding' | 'storedLength' | 'content'
>

export interface IncomingAttachment {
  readonly name: string
  readonly type: string
  /** As sent, if it is a number. */
  readonly revpos: number | undefined
  /** Null for a stub, which means the stored content. */
  readonly content: IncomingContent | null
}

/** An attachment whose content follows the document's JSON as a separate part (protocol.md 7.2). */
export interface FollowingAttachment extends Omit<IncomingAttachment, 'content'> {
  readonly encoding: AttachmentEncoding
  /** The number of bytes that follow, and their digest, if the document states them. */
  readonly storedLength: number | undefined
  readonly digest: string | undefined
}

interface ReadAttachments {
  readonly attachments: readonly IncomingAttachment[]
  readonly follows: readonly FollowingAttachment[]
  /** The names of all attachments, in the order sent. */
  readonly names: readonly string[]
}

/**
 * Reads the attachments of a document, in steps.
 * @param json the JSON text of `_attachments`
 * @param contents those that the text was read without
 * @throws bad_request, doc_validation unless it is an object, attachment_too_large
 */
export async function readAttachments(
  json: string,
  settings: Settings,
  contents?: LeftContents,
): Promise<ReadAttachments> {
  if (!isObject(json)) throw new CouchError('doc_validation', 'Bad special document member: _attachments')
  const { special: entries } = await splitInSteps(json, () => true)
  const names = [...entries.keys()]
  if (!settings.rules.policy.attachments) return { attachments: names.map(unread), follows: [], names }
  const attachments: IncomingAttachment[] = []
  const follows: FollowingAttachment[] = []
  const isFull = names.length > settings.rules.maxAttachments
  for (const [name, entry] of entries) {
    const read = await readAttachment(name, entry, settings, isFull, contents)
    if ('content' in read) attachments.push(read)
    else follows.push(read)
  }
  return { attachments, follows, names }
}

/** Whether a JSON text without leading white space is an object. */
function isObject(json: string): boolean {
  return json.startsWith('{')
}

/** The content is not read, since the policy refuses the document for the attachment (document-policy.ts). */
function unread(name: string): IncomingAttachment {
  return { name, type: 'application/octet-stream', revpos: undefined, content: null }
}

/**
 * @param json the JSON text of the attachment
 * @param isFull whether the document has too many attachments to add a new one
 */
async function readAttachment(
  name: string,
  json: string,
  settings: Settings,
  isFull: boolean,
  contents: LeftContents | undefined,
): Promise<IncomingAttachment | FollowingAttachment> {
  checkAttachmentName(name)
  if (!isObject(json)) throw invalidAttachment(name)
  const { special: members } = await splitInSteps(json, () => true)
  const type = memberValue(members, 'content_type')
  if (type !== undefined && typeof type !== 'string') throw invalidAttachment(name)
  const revpos = memberValue(members, 'revpos')
  const common = {
    name,
    type: type ?? 'application/octet-stream',
    revpos: Number.isSafeInteger(revpos) ? (revpos as number) : undefined,
  }
  if (members.get('stub') === 'true') return { ...common, content: null }
  if (isFull) throw tooManyAttachments(settings.rules.maxAttachments)
  if (members.get('follows') === 'true') return { ...common, ...readFollowing(name, members) }
  const data = members.get('data')
  if (!data?.startsWith('"')) throw invalidAttachment(name)
  const text = data.slice(1, -1)
  return { ...common, content: await inlineContent(contents?.find(text) ?? text, common, settings) }
}

function readFollowing(
  name: string,
  members: ReadonlyMap<string, string>,
): Pick<FollowingAttachment, 'encoding' | 'storedLength' | 'digest'> {
  const coding = members.has('encoding') ? memberValue(members, 'encoding') : 'identity'
  if (typeof coding !== 'string') throw invalidAttachment(name)
  const encoding = readEncoding(coding)
  // With an encoding, `length` is the decoded length, but a client that stored the attachment in CouchDB itself may
  // send another.
  const storedLength = memberValue(members, encoding === null ? 'length' : 'encoded_length')
  if (storedLength !== undefined && !Number.isSafeInteger(storedLength)) throw invalidAttachment(name)
  const digest = memberValue(members, 'digest')
  return {
    encoding,
    storedLength: storedLength as number | undefined,
    digest: typeof digest === 'string' && digest.startsWith('md5-') ? digest : undefined,
  }
}

/** Parses an attachment's encoding. @throws bad_content_type unless it is gzip or identity (protocol.md 7.4) */
export function readEncoding(coding: string): AttachmentEncoding {
  const name = coding.trim().toLowerCase()
  if (name === 'gzip') return 'gzip'
  if (name === 'identity' || name === '') return null
  throw new CouchError('bad_content_type', 'Only gzip and identity content-encodings are supported')
}

/** @throws bad_request, protocol.md 1.2 */
export function checkAttachmentName(name: string): void {
  if (!name.isWellFormed()) throw new CouchError('bad_request', 'Attachment name is not UTF-8 encoded')
  if (name.startsWith('_')) {
    throw new CouchError('bad_request', `Attachment name '${name}' starts with prohibited character '_'`)
  }
}

/**
 * Checks a new attachment's name more strictly. CouchDB accepts any name, but no client can request a name with a
 * segment `..`, and control characters break the headers that contain names. Replication accepts any name: a refusal
 * would stop it for good, and a name is only a key.
 * @throws bad_request
 */
export function checkNewAttachmentName(name: string): void {
  if (name === '') throw new CouchError('bad_request', 'Attachment name must not be empty')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
  if (/[\u0000-\u001f\u007f]/.test(name)) {
    throw new CouchError('bad_request', 'Attachment name must not contain control characters')
  }
  if (name.split('/').some((segment) => segment === '.' || segment === '..')) {
    throw new CouchError('bad_request', 'Attachment name must not contain the segments . or ..')
  }
}

/**
 * Checks the names of all new contents in a document. Stored attachments may have any name.
 * @throws bad_request
 */
export function checkNewAttachmentNames({
  attachments,
}: {
  readonly attachments: readonly IncomingAttachment[]
}): void {
  for (const { name, content } of attachments) if (content !== null) checkNewAttachmentName(name)
}

export function tooManyAttachments(max: number): CouchError {
  return new CouchError(
    'document_too_large',
    `a document has at most ${max} attachments (settee/max_attachments)`,
  )
}

export function tooLongNames(bytes: number): CouchError {
  return new CouchError(
    'document_too_large',
    `the names and types of the attachments of a document have at most ${bytes} bytes together (settee/max_attachments)`,
  )
}

/** The error for an attachment with a wrong or missing member. */
export function invalidAttachment(name: string): CouchError {
  return new CouchError('bad_request', `Invalid attachment data for ${name}`)
}

/**
 * Decodes a content inside the document, and compresses it if the configuration requires this.
 * @param data base64 as a JSON string, without its quotes
 */
async function inlineContent(
  data: ContentText,
  { name, type }: Pick<IncomingAttachment, 'name' | 'type'>,
  { limits, rules }: Settings,
): Promise<IncomingContent> {
  const bytes = await decoded(data, name, limits)
  const { length } = bytes
  const isGzip = isCompressible(type, rules.compression)
  const stored = isGzip ? await gzippedBytes(bytes, rules.compression.level) : bytes
  const { digest, sha256 } = await hashesOf(stored)
  const content = { bytes: stored, sha256 }
  return { digest, length, encoding: isGzip ? 'gzip' : null, storedLength: stored.length, content }
}

/** Decodes in steps, so that a large content does not block the thread. */
async function decoded(data: ContentText, name: string, { maxAttachmentSize }: Limits): Promise<Uint8Array> {
  // White space and escapes can make the text longer than its content needs; the text is never shorter.
  const bytes = Buffer.allocUnsafeSlow(Math.min(bytesIn(data.length), maxAttachmentSize))
  const yielder = new Yielder()
  let filled = 0
  let rest = ''
  for (const { text, isLast } of stringSteps(data)) {
    const digits = rest + digitsIn(text, name)
    const whole = isLast ? digits.length : digits.length - (digits.length % 4)
    const step = isLast ? withoutPadding(digits, name) : digits.slice(0, whole)
    if (NOT_BASE64.test(step)) throw invalidAttachment(name)
    if (filled + bytesIn(step.length) > maxAttachmentSize) throw new CouchError('attachment_too_large', name)
    filled += bytes.write(step, filled, 'base64')
    rest = digits.slice(whole)
    await yielder.yieldIfDue()
  }
  return bytes.subarray(0, filled)
}

/** The number of bytes that this many base64 digits encode, without padding. */
function bytesIn(digits: number): number {
  return Math.floor((digits * 3) / 4)
}

/** @param json a part of a JSON string */
function digitsIn(json: string, name: string): string {
  const text = json.includes('\\') ? unescaped(json, name) : json
  return /\s/.test(text) ? text.replace(/\s+/g, '') : text
}

function unescaped(json: string, name: string): string {
  try {
    return JSON.parse(`"${json}"`) as string
  } catch {
    // The step ends between two backslashes; neither is a base64 digit.
    throw invalidAttachment(name)
  }
}

/** @throws bad_request unless the digits, padding included, are a multiple of 4 */
function withoutPadding(digits: string, name: string): string {
  if (digits.length % 4 !== 0) throw invalidAttachment(name)
  return digits.slice(0, digits.endsWith('==') ? -2 : digits.endsWith('=') ? -1 : undefined)
}

async function hashesOf(bytes: Uint8Array): Promise<{ digest: string; sha256: Buffer }> {
  const md5 = createHash('md5')
  const sha256 = createHash('sha256')
  const yielder = new Yielder()
  for (let at = 0; at < bytes.length; at += HASH_STEP) {
    const step = bytes.subarray(at, at + HASH_STEP)
    md5.update(step)
    sha256.update(step)
    if (yielder.isDue) await yielder.yieldIfDue()
  }
  return { digest: `md5-${md5.digest('base64')}`, sha256: sha256.digest() }
}

/** Bytes that zlib takes or returns in one step; zlib works on its own thread. */
export const CODING_STEP = 64 * 1024

/**
 * Whether content that arrives uncompressed is stored as gzip.
 * @param type the attachment's type; parameters such as a charset are ignored (couch_util:is_compressible)
 */
export function isCompressible(type: string, { level, types }: CompressionRules): boolean {
  if (level === 0) return false
  const [name = ''] = type.split(';', 1)
  const normalized = name.trim().toLowerCase()
  return types.some((pattern) => matches(normalized, pattern.toLowerCase()))
}

/** A `*` matches any characters. */
function matches(type: string, pattern: string): boolean {
  const [first = '', ...rest] = pattern.split('*')
  const last = rest.pop()
  if (last === undefined) return type === first
  if (!type.startsWith(first)) return false
  let at = first.length
  for (const part of rest) {
    const found = type.indexOf(part, at)
    if (found === -1) return false
    at = found + part.length
  }
  return type.length - last.length >= at && type.endsWith(last)
}

/**
 * Compresses a content with gzip, in steps.
 * @param pieces each piece must not change until the next is requested
 * @param level from 1 to 9
 */
export async function* gzipped(pieces: Iterable<Uint8Array>, level: number): AsyncGenerator<Uint8Array> {
  const gzip = createGzip({ level, chunkSize: CODING_STEP })
  const fed = pipeline(Readable.from(pieces, { objectMode: false }), gzip)
  // The iteration throws the same error.
  fed.catch(() => undefined)
  try {
    yield* gzip as AsyncIterable<Buffer>
  } finally {
    gzip.destroy()
    await fed.catch(() => undefined)
  }
}

/** Compresses a content in memory with gzip. */
async function gzippedBytes(bytes: Uint8Array, level: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of gzipped(steps(bytes), level)) {
    chunks.push(chunk)
    length += chunk.length
  }
  const whole = Buffer.allocUnsafeSlow(length)
  const yielder = new Yielder()
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
    if (yielder.isDue) await yielder.yieldIfDue()
  }
  return whole
}

function* steps(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += CODING_STEP) yield bytes.subarray(at, at + CODING_STEP)
}

/**
 * The length of a gzip content when inflated; the inflated bytes are not kept.
 * @param pieces as for {@link gzipped}
 * @param name the attachment's name, for the error
 * @throws attachment_too_large beyond `limit`, gzip_body
 */
export async function inflatedLength(
  pieces: Iterable<Uint8Array>,
  name: string,
  limit: number,
): Promise<number> {
  let length = 0
  const count = async (inflated: AsyncIterable<Uint8Array>) => {
    for await (const chunk of inflated) {
      length += chunk.length
      if (length > limit) return
    }
  }
  try {
    await pipeline(Readable.from(pieces), createGunzip({ chunkSize: CODING_STEP }), count)
  } catch (error) {
    // Stopping early makes the pipeline fail.
    if (length <= limit) throw inflateFailure(error)
  }
  if (length > limit) throw new CouchError('attachment_too_large', name)
  return length
}

function inflateFailure(error: unknown): unknown {
  const { code = '' } = error as NodeJS.ErrnoException
  return code.startsWith('Z_') ? new CouchError('gzip_body', undefined, { cause: error }) : error
}
