/** The attachments that a client's document names: checked, those that stand in it decoded (protocol.md 7). */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createGzip } from 'node:zlib'
import { CouchError } from '../core/errors.ts'
import type { CompressionRules, Limits, Settings } from '../core/types.ts'
import { Yielder } from '../core/yielder.ts'
import type { AttachmentEncoding, AttachmentWrite } from '../storage/engine.ts'
import { memberValue, splitInSteps } from './body.ts'

/** Looks for what is wrong: an expression for all that is right overflows the stack at 8 MB. */
const NOT_BASE64 = /[^A-Za-z0-9+/]/
/** Characters decoded in one go, less than a millisecond's work. */
const BASE64_STEP = 1024 * 1024
/** Characters of the longest escape in a JSON string, `\\u002b`. */
const LONGEST_ESCAPE = 6
/** Bytes hashed in one go, about two milliseconds' work. */
const HASH_STEP = 768 * 1024

/** An attachment's content: its bytes, or the name of what is staged or stored already. */
export type IncomingContent = Pick<
  AttachmentWrite,
  'digest' | 'length' | 'encoding' | 'storedLength' | 'content'
>

export interface IncomingAttachment {
  readonly name: string
  readonly type: string
  /** As sent, if a number was. */
  readonly revpos: number | undefined
  /** null: a stub, which stands for what is stored. */
  readonly content: IncomingContent | null
}

/** An attachment whose content follows the document's JSON, in a part of its own (protocol.md 7.2). */
export interface FollowingAttachment extends Omit<IncomingAttachment, 'content'> {
  readonly encoding: AttachmentEncoding
  /** How many bytes are to follow, and their digest, where the document says so. */
  readonly storedLength: number | undefined
  readonly digest: string | undefined
}

interface ReadAttachments {
  readonly attachments: readonly IncomingAttachment[]
  readonly follows: readonly FollowingAttachment[]
  /** Of all, in the order in which they were sent. */
  readonly names: readonly string[]
}

/**
 * Reads the attachments of a document, in steps.
 * @param json the JSON text of `_attachments`
 * @throws bad_request, doc_validation unless it is an object, attachment_too_large
 */
export async function readAttachments(json: string, settings: Settings): Promise<ReadAttachments> {
  if (!isObject(json)) throw new CouchError('doc_validation', 'Bad special document member: _attachments')
  const { special: entries } = await splitInSteps(json, () => true)
  const names = [...entries.keys()]
  if (!settings.rules.policy.attachments) return { attachments: names.map(unread), follows: [], names }
  const attachments: IncomingAttachment[] = []
  const follows: FollowingAttachment[] = []
  const isFull = names.length > settings.rules.maxAttachments
  for (const [name, entry] of entries) {
    const read = await readAttachment(name, entry, settings, isFull)
    if ('content' in read) attachments.push(read)
    else follows.push(read)
  }
  return { attachments, follows, names }
}

/** Whether a JSON text, which has no white space before it, is that of an object. */
function isObject(json: string): boolean {
  return json.startsWith('{')
}

/** The policy refuses the document for it (document-policy.ts), so its content is not read. */
function unread(name: string): IncomingAttachment {
  return { name, type: 'application/octet-stream', revpos: undefined, content: null }
}

/**
 * @param json the JSON text of the attachment
 * @param isFull whether the document has too many attachments to bring a new one
 */
async function readAttachment(
  name: string,
  json: string,
  settings: Settings,
  isFull: boolean,
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
  return { ...common, content: await inlineContent(data.slice(1, -1), common, settings) }
}

function readFollowing(
  name: string,
  members: ReadonlyMap<string, string>,
): Pick<FollowingAttachment, 'encoding' | 'storedLength' | 'digest'> {
  const coding = members.has('encoding') ? memberValue(members, 'encoding') : 'identity'
  if (typeof coding !== 'string') throw invalidAttachment(name)
  const encoding = readEncoding(coding)
  // With an encoding `length` is of what is decoded, or, of one that a client has put into CouchDB itself, not.
  const storedLength = memberValue(members, encoding === null ? 'length' : 'encoded_length')
  if (storedLength !== undefined && !Number.isSafeInteger(storedLength)) throw invalidAttachment(name)
  const digest = memberValue(members, 'digest')
  return {
    encoding,
    storedLength: storedLength as number | undefined,
    digest: typeof digest === 'string' && digest.startsWith('md5-') ? digest : undefined,
  }
}

/** How an attachment is coded. @throws bad_content_type for what is neither gzip nor identity (protocol.md 7.4) */
export function readEncoding(coding: string): AttachmentEncoding {
  const name = coding.trim().toLowerCase()
  if (name === 'gzip') return 'gzip'
  if (name === 'identity' || name === '') return null
  throw new CouchError('bad_content_type', 'Only gzip and identity content-encodings are supported')
}

/** @throws bad_request, protocol.md 1.2 */
export function checkAttachmentName(name: string): void {
  if (!name.isWellFormed()) throw new CouchError('bad_request', 'Attachment name is not UTF-8 encoded')
  if (name === '') throw new CouchError('bad_request', 'Attachment name must not be empty')
  if (name.startsWith('_')) {
    throw new CouchError('bad_request', `Attachment name '${name}' starts with prohibited character '_'`)
  }
}

/**
 * What a name must be beside that where it is given here and now. CouchDB takes any; but no client can ask for one
 * with a segment `..`, and control characters break the headers that names stand in. Replication takes what there is:
 * a refusal would hold it up for good, and a name is a key and nothing else.
 * @throws bad_request
 */
export function checkNewAttachmentName(name: string): void {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
  if (/[\u0000-\u001f\u007f]/.test(name)) {
    throw new CouchError('bad_request', 'Attachment name must not contain control characters')
  }
  if (name.split('/').some((segment) => segment === '.' || segment === '..')) {
    throw new CouchError('bad_request', 'Attachment name must not contain the segments . or ..')
  }
}

/** The same for all contents that a document brings; what is kept of earlier ones may have any name. @throws bad_request */
export function checkNewAttachmentNames({
  attachments,
}: {
  readonly attachments: readonly IncomingAttachment[]
}): void {
  for (const { name, content } of attachments) if (content !== null) checkNewAttachmentName(name)
}

/**
 * Refuses new contents of a document that has too many. Stubs pass: what is there can be edited and removed.
 * @throws document_too_large
 */
export function checkAttachmentCount(attachments: readonly IncomingAttachment[], most: number): void {
  if (attachments.length <= most || attachments.every(({ content }) => content === null)) return
  throw tooManyAttachments(most)
}

function tooManyAttachments(most: number): CouchError {
  return new CouchError(
    'document_too_large',
    `a document has at most ${most} attachments (settee/max_attachments)`,
  )
}

/** The error for an attachment with a wrong or missing member. */
export function invalidAttachment(name: string): CouchError {
  return new CouchError('bad_request', `Invalid attachment data for ${name}`)
}

/**
 * Content that stands in the document, as it is stored.
 * @param data base64 as a JSON string, without its quotes
 */
async function inlineContent(
  data: string,
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

/** Decodes in steps, so that a large content does not hold the thread. */
async function decoded(data: string, name: string, { maxAttachmentSize }: Limits): Promise<Uint8Array> {
  // White space and escapes make it longer than its content needs; nothing makes it shorter.
  const bytes = Buffer.allocUnsafeSlow(Math.min(bytesIn(data.length), maxAttachmentSize))
  const yielder = new Yielder()
  let filled = 0
  let rest = ''
  for (let at = 0; at < data.length; ) {
    const end = stepEnd(data, at)
    const digits = rest + digitsIn(data.slice(at, end), name)
    const isLast = end === data.length
    const whole = isLast ? digits.length : digits.length - (digits.length % 4)
    const step = isLast ? withoutPadding(digits, name) : digits.slice(0, whole)
    if (NOT_BASE64.test(step)) throw invalidAttachment(name)
    if (filled + bytesIn(step.length) > maxAttachmentSize) throw new CouchError('attachment_too_large', name)
    filled += bytes.write(step, filled, 'base64')
    rest = digits.slice(whole)
    at = end
    await yielder.yieldIfDue()
  }
  return bytes.subarray(0, filled)
}

/** How many bytes so many digits of base64 stand for, padding not counted. */
function bytesIn(digits: number): number {
  return Math.floor((digits * 3) / 4)
}

/** Where the next step of a JSON string ends: never within an escape. */
function stepEnd(data: string, at: number): number {
  const end = at + BASE64_STEP
  if (end >= data.length) return data.length
  const backslash = data.slice(end - LONGEST_ESCAPE, end).indexOf('\\')
  return backslash < 0 ? end : end - LONGEST_ESCAPE + backslash
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
    // A step that ends between two backslashes: neither is a digit of base64.
    throw invalidAttachment(name)
  }
}

/** @throws bad_request unless there are four digits for every three bytes, padding counted */
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

// How the contents of attachments are coded: gzip that comes, and gzip that `[attachments]` asks for (protocol.md 7.1).

/** Bytes that go into zlib, or come out of it, in one step; it works at them on a thread of its own. */
export const CODING_STEP = 64 * 1024

/**
 * Whether a content that comes as it is, is stored as gzip.
 * @param type the attachment's; parameters such as a charset do not count (couch_util:is_compressible)
 */
export function isCompressible(type: string, { level, types }: CompressionRules): boolean {
  if (level === 0) return false
  const [name = ''] = type.split(';', 1)
  const asked = name.trim().toLowerCase()
  return types.some((pattern) => matches(asked, pattern.toLowerCase()))
}

/** A `*` stands for any characters. */
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
 * A content as gzip, in steps.
 * @param pieces stay as they are until the next is asked for
 * @param level from 1 to 9
 */
export async function* gzipped(pieces: Iterable<Uint8Array>, level: number): AsyncGenerator<Uint8Array> {
  const gzip = createGzip({ level, chunkSize: CODING_STEP })
  const fed = pipeline(Readable.from(pieces, { objectMode: false }), gzip)
  // What fails it comes out of the iteration as well.
  fed.catch(() => undefined)
  try {
    yield* gzip as AsyncIterable<Buffer>
  } finally {
    gzip.destroy()
    await fed.catch(() => undefined)
  }
}

/** A content in memory as gzip. */
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
 * How long a gzipped content is when it is inflated; nothing is kept of it.
 * @param pieces as of {@link gzipped}
 * @param name the attachment's, for the refusal
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
    // Going no further breaks the pipeline off.
    if (length <= limit) throw inflateFailure(error)
  }
  if (length > limit) throw new CouchError('attachment_too_large', name)
  return length
}

function inflateFailure(error: unknown): unknown {
  const { code = '' } = error as NodeJS.ErrnoException
  return code.startsWith('Z_') ? new CouchError('gzip_body', undefined, { cause: error }) : error
}
