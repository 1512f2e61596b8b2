/** A client's document: its JSON taken apart and checked as far as that needs no look at what is stored. */
import { createHash } from 'node:crypto'
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import type { Limits } from '../core/types.ts'
import { parseRevisions } from '../revisions/branch.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import { splitDocument } from './body.ts'

/** Members that a client may send back as it got them, and that mean nothing in a write (protocol.md 2.4). */
const DROPPED = new Set(['_revs_info', '_local_seq', '_conflicts', '_deleted_conflicts'])
const UNDERSTOOD = new Set(['_id', '_rev', '_revisions', '_deleted', '_attachments'])

/** Looks for what is wrong: an expression for all that is right overflows the stack at 8 MB. */
const NOT_BASE64 = /[^A-Za-z0-9+/]/
/** Characters decoded and hashed in one go, about two milliseconds' work; groups of four stay whole. */
const BASE64_STEP = 1024 * 1024

/** An attachment that came with its bytes. */
export interface NewContent {
  readonly bytes: Uint8Array
  readonly sha256: Uint8Array
  readonly digest: string
}

export interface IncomingAttachment {
  readonly name: string
  readonly type: string
  /** As sent, if a number was. */
  readonly revpos: number | undefined
  /** null: a stub, which stands for what is stored. */
  readonly content: NewContent | null
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
 * Reads one document.
 * @param text its JSON
 * @param address the id that the address gives it, which counts, if any
 * @throws invalid_json, document_not_object, too_deep, doc_validation, invalid_rev, bad_request (attachments),
 * document_too_large, attachment_too_large
 */
export async function readDocument(text: string, limits: Limits, address?: string): Promise<IncomingDoc> {
  const { special, body } = splitDocument(text)
  for (const name of special.keys()) {
    if (!UNDERSTOOD.has(name) && !DROPPED.has(name)) throw badMember(name)
  }
  const id = special.get('_id')
  if (Buffer.byteLength(body) > limits.maxDocumentSize) {
    throw new CouchError('document_too_large', address ?? (typeof id === 'string' ? id : ''))
  }
  const deleted = special.has('_deleted') ? special.get('_deleted') : false
  if (typeof deleted !== 'boolean') throw badMember('_deleted')
  const attachments = special.get('_attachments')
  return {
    id,
    path: readPath(special),
    deleted,
    body,
    attachments: attachments === undefined ? [] : await readAttachments(attachments, limits),
  }
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

async function readAttachments(value: unknown, limits: Limits): Promise<IncomingAttachment[]> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw badMember('_attachments')
  const attachments: IncomingAttachment[] = []
  for (const [name, entry] of Object.entries(value)) {
    attachments.push(await readAttachment(name, entry, limits))
  }
  return attachments
}

async function readAttachment(name: string, entry: unknown, limits: Limits): Promise<IncomingAttachment> {
  checkAttachmentName(name)
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) throw badData(name)
  const { data, stub, content_type: type, revpos } = entry as Record<string, unknown>
  if (type !== undefined && typeof type !== 'string') throw badData(name)
  const common = {
    name,
    type: type ?? 'application/octet-stream',
    revpos: Number.isSafeInteger(revpos) ? (revpos as number) : undefined,
  }
  if (stub === true) return { ...common, content: null }
  if (typeof data !== 'string') throw badData(name)
  return { ...common, content: await decoded(data, name, limits) }
}

/** @throws bad_request, protocol.md 1.2 */
export function checkAttachmentName(name: string): void {
  if (!name.isWellFormed()) throw new CouchError('bad_request', 'Attachment name is not UTF-8 encoded')
  if (name === '') throw new CouchError('bad_request', 'Attachment name must not be empty')
  if (name.startsWith('_')) {
    throw new CouchError('bad_request', `Attachment name '${name}' starts with prohibited character '_'`)
  }
}

function badData(name: string): CouchError {
  return new CouchError('bad_request', `Invalid attachment data for ${name}`)
}

/** Decodes and hashes content in steps, so that a large one does not hold the thread. */
async function decoded(data: string, name: string, limits: Limits): Promise<NewContent> {
  const { digits, length } = base64Content(data, name)
  if (length > limits.maxAttachmentSize) throw new CouchError('attachment_too_large', name)
  const bytes = Buffer.allocUnsafeSlow(length)
  const md5 = createHash('md5')
  const sha256 = createHash('sha256')
  const breath = new Breath()
  let filled = 0
  for (let at = 0; at < digits.length; at += BASE64_STEP) {
    const step = digits.slice(at, at + BASE64_STEP)
    if (NOT_BASE64.test(step)) throw badData(name)
    const end = filled + bytes.write(step, filled, 'base64')
    md5.update(bytes.subarray(filled, end))
    sha256.update(bytes.subarray(filled, end))
    filled = end
    await breath.take()
  }
  return { bytes, sha256: sha256.digest(), digest: `md5-${md5.digest('base64')}` }
}

/** The digits of base64 text without white space and padding, and how many bytes they stand for. */
function base64Content(data: string, name: string): { digits: string; length: number } {
  const dense = /\s/.test(data) ? data.replace(/\s+/g, '') : data
  const padding = dense.endsWith('==') ? 2 : dense.endsWith('=') ? 1 : 0
  if (dense.length % 4 !== 0) throw badData(name)
  return { digits: dense.slice(0, dense.length - padding), length: (dense.length / 4) * 3 - padding }
}
