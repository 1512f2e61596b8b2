/** A client's document: its JSON taken apart and checked as far as that needs no look at what is stored. */

import { createHash } from 'node:crypto'
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json-object.ts'
import type { Limits, Settings } from '../core/types.ts'
import { parseRevisions } from '../revisions/branch.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import type { AttachmentEncoding, AttachmentWrite } from '../storage/engine.ts'
import { gzippedBytes, isCompressible } from './attachment-coding.ts'
import { type SplitDocument, splitDocument } from './body.ts'

/** Members that a client may send back as it got them, and that mean nothing in a write (protocol.md 2.4). */
const DROPPED = new Set(['_revs_info', '_local_seq', '_conflicts', '_deleted_conflicts'])
const UNDERSTOOD = new Set(['_id', '_rev', '_revisions', '_deleted', '_attachments'])

const NO_ATTACHMENTS: IncomingDoc['attachments'] = []

/** Looks for what is wrong: an expression for all that is right overflows the stack at 8 MB. */
const NOT_BASE64 = /[^A-Za-z0-9+/]/
/** Characters decoded in one go, less than a millisecond's work; groups of four stay whole. */
const BASE64_STEP = 1024 * 1024
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

export interface IncomingDoc {
  /** `_id` as sent, unchecked; undefined when there was none. */
  readonly id: unknown
  /** From `_revisions`, else from `_rev`: the revision named, and its ancestry newest first. */
  readonly path: { readonly pos: number; readonly ids: readonly string[] } | null
  readonly deleted: boolean
  /** The text that is stored. */
  readonly body: string
  readonly attachments: readonly IncomingAttachment[]
}

/**
 * Reads one document: at once, unless it brings attachments, whose contents are decoded in steps.
 * @param text its JSON
 * @param address the id that the address gives it, which counts, if any
 * @throws invalid_json, document_not_object, too_deep, doc_validation, invalid_rev, bad_request (attachments),
 * document_too_large, attachment_too_large
 */
export function readDocument(
  text: string,
  settings: Settings,
  address?: string,
): IncomingDoc | Promise<IncomingDoc> {
  return readSplit(splitDocument(text), settings, address)
}

/** As {@link readDocument}, of a document that is taken apart already. */
export function readSplit(
  split: SplitDocument,
  settings: Settings,
  address?: string,
): IncomingDoc | Promise<IncomingDoc> {
  const members = readMembers(split, settings.limits, address)
  const attachments = members.special.get('_attachments')
  return attachments === undefined
    ? documentOf(members, NO_ATTACHMENTS)
    : withAttachments(members, attachments, settings)
}

async function withAttachments(members: Members, value: unknown, settings: Settings): Promise<IncomingDoc> {
  const { attachments, follows } = await readAttachments(value, settings)
  const doc = documentOf(members, attachments)
  const [first] = follows
  if (first !== undefined) throw badData(first.name)
  return doc
}

/**
 * Reads a document whose attachments may follow it.
 * @returns the document without those that follow, these, and the names of all, as JSON.parse orders them
 * @throws as {@link readDocument}
 */
export async function readLeadingDocument(
  text: string,
  settings: Settings,
  address?: string,
): Promise<{
  readonly doc: IncomingDoc
  readonly follows: readonly FollowingAttachment[]
  readonly names: readonly string[]
}> {
  const members = readMembers(splitDocument(text), settings.limits, address)
  const value = members.special.get('_attachments')
  const { attachments, follows } = await readAttachments(value === undefined ? {} : value, settings)
  return { doc: documentOf(members, attachments), follows, names: Object.keys(value ?? {}) }
}

/** What a document says of itself, all but its attachments and its revision checked. */
interface Members {
  readonly special: ReadonlyMap<string, unknown>
  readonly deleted: boolean
  readonly body: string
}

function readMembers({ special, body }: SplitDocument, limits: Limits, address: string | undefined): Members {
  for (const name of special.keys()) {
    if (!UNDERSTOOD.has(name) && !DROPPED.has(name)) throw badMember(name)
  }
  if (isLonger(body, limits.maxDocumentSize)) {
    const id = special.get('_id')
    throw new CouchError('document_too_large', address ?? (typeof id === 'string' ? id : ''))
  }
  const deleted = special.has('_deleted') ? special.get('_deleted') : false
  if (typeof deleted !== 'boolean') throw badMember('_deleted')
  return { special, deleted, body }
}

/** Whether a text has more bytes in UTF-8; no unit of UTF-16 makes more than three. */
function isLonger(text: string, bytes: number): boolean {
  return 3 * text.length > bytes && Buffer.byteLength(text) > bytes
}

function documentOf(
  { special, deleted, body }: Members,
  attachments: IncomingDoc['attachments'],
): IncomingDoc {
  return { id: special.get('_id'), path: readPath(special), deleted, body, attachments }
}

function badMember(name: string): CouchError {
  return new CouchError('doc_validation', `Bad special document member: ${name.slice(0, 256)}`)
}

function readPath(special: ReadonlyMap<string, unknown>): { pos: number; ids: string[] } | null {
  if (special.has('_revisions')) return parseRevisions(special.get('_revisions'))
  if (!special.has('_rev')) return null
  const rev = parseRev(special.get('_rev'))
  return { pos: rev.pos, ids: [rev.id] }
}

/** The revision that a document names. */
export function namedRev(doc: IncomingDoc): Rev | null {
  return doc.path === null ? null : { pos: doc.path.pos, id: doc.path.ids[0] as string }
}

interface Attachments {
  readonly attachments: readonly IncomingAttachment[]
  readonly follows: readonly FollowingAttachment[]
}

async function readAttachments(value: unknown, settings: Settings): Promise<Attachments> {
  if (!isJsonObject(value)) throw badMember('_attachments')
  if (settings.rules.isHosted) return { attachments: Object.keys(value).map(unread), follows: [] }
  const attachments: IncomingAttachment[] = []
  const follows: FollowingAttachment[] = []
  for (const [name, entry] of Object.entries(value)) {
    const read = await readAttachment(name, entry, settings)
    if ('content' in read) attachments.push(read)
    else follows.push(read)
  }
  return { attachments, follows }
}

/** Hosted mode refuses the document for it (hosted.ts), so nothing of it is looked at. */
function unread(name: string): IncomingAttachment {
  return { name, type: 'application/octet-stream', revpos: undefined, content: null }
}

async function readAttachment(
  name: string,
  entry: unknown,
  settings: Settings,
): Promise<IncomingAttachment | FollowingAttachment> {
  checkAttachmentName(name)
  if (!isJsonObject(entry)) throw badData(name)
  const { data, stub, follows, content_type: type, revpos } = entry
  if (type !== undefined && typeof type !== 'string') throw badData(name)
  const common = {
    name,
    type: type ?? 'application/octet-stream',
    revpos: Number.isSafeInteger(revpos) ? (revpos as number) : undefined,
  }
  if (stub === true) return { ...common, content: null }
  if (follows === true) return { ...common, ...readFollowing(name, entry as Record<string, unknown>) }
  if (typeof data !== 'string') throw badData(name)
  return { ...common, content: await inlineContent(data, common, settings) }
}

function readFollowing(
  name: string,
  entry: Record<string, unknown>,
): Pick<FollowingAttachment, 'encoding' | 'storedLength' | 'digest'> {
  const { encoding: coding = 'identity', length, encoded_length: encodedLength, digest } = entry
  if (typeof coding !== 'string') throw badData(name)
  const encoding = readEncoding(coding)
  // With an encoding `length` is of what is decoded, or, of one that a client has put into CouchDB itself, not.
  const storedLength = encoding === null ? length : encodedLength
  if (storedLength !== undefined && !Number.isSafeInteger(storedLength)) throw badData(name)
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
export function checkNewAttachmentNames({ attachments }: IncomingDoc): void {
  for (const { name, content } of attachments) if (content !== null) checkNewAttachmentName(name)
}

function badData(name: string): CouchError {
  return new CouchError('bad_request', `Invalid attachment data for ${name}`)
}

/** Content that stands in the document, as it is stored. */
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
async function decoded(data: string, name: string, limits: Limits): Promise<Buffer> {
  const { digits, length } = base64Content(data, name)
  if (length > limits.maxAttachmentSize) throw new CouchError('attachment_too_large', name)
  const bytes = Buffer.allocUnsafeSlow(length)
  const breath = new Breath()
  let filled = 0
  for (let at = 0; at < digits.length; at += BASE64_STEP) {
    const step = digits.slice(at, at + BASE64_STEP)
    if (NOT_BASE64.test(step)) throw badData(name)
    filled += bytes.write(step, filled, 'base64')
    if (breath.isDue) await breath.take()
  }
  return bytes
}

async function hashesOf(bytes: Uint8Array): Promise<{ digest: string; sha256: Buffer }> {
  const md5 = createHash('md5')
  const sha256 = createHash('sha256')
  const breath = new Breath()
  for (let at = 0; at < bytes.length; at += HASH_STEP) {
    const step = bytes.subarray(at, at + HASH_STEP)
    md5.update(step)
    sha256.update(step)
    if (breath.isDue) await breath.take()
  }
  return { digest: `md5-${md5.digest('base64')}`, sha256: sha256.digest() }
}

/** The digits of base64 text without white space and padding, and how many bytes they stand for. */
function base64Content(data: string, name: string): { digits: string; length: number } {
  const dense = /\s/.test(data) ? data.replace(/\s+/g, '') : data
  const padding = dense.endsWith('==') ? 2 : dense.endsWith('=') ? 1 : 0
  if (dense.length % 4 !== 0) throw badData(name)
  return { digits: dense.slice(0, dense.length - padding), length: (dense.length / 4) * 3 - padding }
}
