/** Renders a stored revision as the JSON for a client, protocol.md 3.1. The stored text is spliced, never parsed. */
import { CouchError, isDamage } from '../core/errors.ts'
import { type Branch, conflicts, deletedConflicts } from '../revisions/branch.ts'
import { leavesBelow } from '../revisions/branch-index.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'
import type { DocState, LocalDoc, StoredAttachment } from '../storage/engine.ts'
import { spliceDocument } from './body.ts'

/** Members to add to the document's own; false by default. */
export interface RenderOptions {
  readonly revs?: boolean | undefined
  /** Maximum number of ids in `_revisions`, since CouchDB applies `_revs_limit` also to reads. All ids by default. */
  readonly revsLimit?: number | undefined
  readonly revsInfo?: boolean | undefined
  readonly localSeq?: boolean | undefined
  readonly conflicts?: boolean | undefined
  readonly deletedConflicts?: boolean | undefined
  /** Attachments as base64 instead of stubs. */
  readonly attachments?: boolean | undefined
  /** Attachments newer than the revision's newest ancestor among these revisions are base64. */
  readonly attsSince?: readonly Rev[] | undefined
  /** Adds `encoding` and `encoded_length` to attachments that are stored compressed. */
  readonly attEncodingInfo?: boolean | undefined
}

type StubOptions = Omit<RenderOptions, 'attachments' | 'attsSince'>

/** The form of attachment contents: as base64 in the JSON, or after it. */
export type ContentForm = 'data' | 'follows'

export interface RenderedDocument {
  readonly rev: string
  /** The JSON, cut at the base64 of each content. There is one more text than there are contents. */
  readonly texts: readonly string[]
  /** Attachments with their content, in the JSON's order. With the form `follows`, they do not cut the text. */
  readonly contents: readonly StoredAttachment[]
}

const NO_CONTENTS: readonly StoredAttachment[] = []

/**
 * The JSON text of a revision, with its attachments as stubs.
 * @param rev a revision with a stored body
 * @throws not_found without a stored body
 */
export function renderDocument(doc: DocState, rev: string, options: StubOptions = {}): string {
  const body = storedBody(doc, rev)
  if (doc.attachments(rev).length === 0) return splicedText(doc, rev, body, options)
  return renderInTexts(doc, rev, 'data', options).texts.join('')
}

/**
 * The JSON text of a revision without its attachments' contents, which are read later, in steps.
 * @param rev a revision with a stored body
 * @throws not_found without a stored body
 */
export function renderInTexts(
  doc: DocState,
  rev: string,
  form: ContentForm,
  options: RenderOptions = {},
): RenderedDocument {
  const body = storedBody(doc, rev)
  const attachments = doc.attachments(rev)
  if (attachments.length === 0) {
    return { rev, texts: [splicedText(doc, rev, body, options)], contents: NO_CONTENTS }
  }
  const { texts, contents } = attachmentsMember(attachments, form, inlineFrom(doc, rev, options), options)
  const [first = '', ...rest] = texts
  const opening = splicedText(doc, rev, body, options, first).slice(0, -1)
  const all = [opening, ...rest]
  return { rev, texts: all.with(-1, `${all.at(-1)}}`), contents }
}

/**
 * Runs a function that renders a document for a list, which goes on without a damaged one.
 * @returns what the function returns, or what `instead` makes of the error of a damaged document
 */
export function unlessDamaged<T, U>(render: () => T, instead: (error: CouchError) => U): T | U {
  try {
    return render()
  } catch (error) {
    if (isDamage(error)) return instead(error)
    throw error
  }
}

/** What filters see of a damaged document: its name. */
export function nameOnly(doc: DocState, rev: string): string {
  return JSON.stringify({ _id: doc.id, _rev: rev })
}

/** What a row has as its document if that is damaged, with the members after it. */
export function damagedMember(error: CouchError): string {
  return `null,"error":${JSON.stringify(error.error)},"reason":${JSON.stringify(error.reason)}`
}

function storedBody(doc: DocState, rev: string): string {
  const body = doc.body(rev)
  if (body === null) throw new CouchError('not_found')
  return body
}

/** @param attachments the member `_attachments`, or the part of it in the first text */
function splicedText(
  doc: DocState,
  rev: string,
  body: string,
  options: RenderOptions,
  attachments?: string,
): string {
  const members = extraMembers(doc, rev, options)
  if (attachments !== undefined) members.push(attachments)
  return spliceDocument({
    id: doc.id,
    rev,
    body,
    deleted: doc.isDeleted(rev) ?? false,
    extra: members.join(','),
  })
}

/** A `_local` document's JSON text. @param revs whether it has `_revisions` */
export function renderLocal({ id, rev, body }: LocalDoc, revs = false): string {
  const extra = revs ? revisionsMember({ pos: 0, ids: [String(rev)] }) : ''
  return spliceDocument({ id, rev: `0-${rev}`, body, extra })
}

function extraMembers(doc: DocState, rev: string, options: RenderOptions): string[] {
  const members: string[] = []
  if (options.revs || options.revsInfo) {
    const path = pathTo(doc, rev)
    if (options.revs) members.push(revisionsMember(path, options.revsLimit))
    if (options.revsInfo) members.push(member('_revs_info', revsInfo(doc, path)))
  }
  if (options.localSeq) members.push(member('_local_seq', doc.seq))
  const losers = options.conflicts ? losersOf(doc, conflicts) : []
  if (losers.length > 0) members.push(member('_conflicts', losers))
  const deletedLosers = options.deletedConflicts ? losersOf(doc, deletedConflicts) : []
  if (deletedLosers.length > 0) members.push(member('_deleted_conflicts', deletedLosers))
  return members
}

function member(name: string, value: unknown): string {
  return `"${name}":${JSON.stringify(value)}`
}

function losersOf(
  doc: DocState,
  find: (branches: readonly Branch[], winner: string) => string[],
): readonly string[] {
  return doc.hasOneLeaf ? [] : find(doc.branches, doc.rev)
}

/** A revision with its ancestors, newest first. */
interface Path {
  readonly pos: number
  readonly ids: readonly string[]
}

/** The revision with its ancestors, on any branch that contains it. */
function pathTo(doc: DocState, rev: string): Path {
  const [first] = doc.branches
  if (doc.hasOneLeaf && rev === doc.rev && first !== undefined) return first
  const { pos, id } = parseRev(rev)
  const [branch] = leavesBelow(doc.branches, { pos, id })
  return { pos, ids: branch === undefined ? [id] : branch.ids.slice(branch.pos - pos) }
}

/** An id of 32 characters is hexadecimal, so it needs no escaping. */
const HEX_DIGITS = 32

function revisionsMember({ pos, ids: all }: Path, limit = all.length): string {
  const ids = all.slice(0, limit)
  const isHex = ids.every(({ length }) => length === HEX_DIGITS)
  return `"_revisions":{"start":${pos},"ids":${isHex ? `["${ids.join('","')}"]` : JSON.stringify(ids)}}`
}

function revsInfo(doc: DocState, { pos, ids }: Path): unknown[] {
  return ids.map((id, steps) => {
    const rev = formatRev(pos - steps, id)
    const deleted = doc.isDeleted(rev)
    return { rev, status: deleted === null ? 'missing' : deleted ? 'deleted' : 'available' }
  })
}

/** The lowest `revpos` of attachments that are sent with their content. */
function inlineFrom(doc: DocState, rev: string, { attachments, attsSince }: RenderOptions): number {
  if (attsSince === undefined) return attachments ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY
  const { pos, ids } = pathTo(doc, rev)
  const known = new Set(attsSince.map(({ pos: at, id }) => formatRev(at, id)))
  const steps = ids.findIndex((id, step) => known.has(formatRev(pos - step, id)))
  return steps === -1 ? Number.NEGATIVE_INFINITY : pos - steps + 1
}

/** The member `_attachments`, cut at each inline content; protocol.md 7.1. */
function attachmentsMember(
  attachments: readonly StoredAttachment[],
  form: ContentForm,
  from: number,
  { attEncodingInfo }: RenderOptions,
): Pick<RenderedDocument, 'texts' | 'contents'> {
  const texts: string[] = []
  const contents: StoredAttachment[] = []
  let text = '"_attachments":{'
  for (const [at, attachment] of attachments.entries()) {
    text += (at === 0 ? '' : ',') + attachmentOpening(attachment)
    const isContent = attachment.revpos >= from
    if (isContent) contents.push(attachment)
    if (isContent && form === 'data') {
      texts.push(`${text},"data":"`)
      text = '"'
    } else text += `,"length":${attachment.length},"${isContent ? 'follows' : 'stub'}":true`
    if (attEncodingInfo) text += encodingMembers(attachment)
    text += '}'
  }
  return { texts: [...texts, `${text}}`], contents }
}

function attachmentOpening({ name, type, revpos, digest }: StoredAttachment): string {
  const members = `"content_type":${JSON.stringify(type)},"revpos":${revpos},"digest":${JSON.stringify(digest)}`
  return `${JSON.stringify(name)}:{${members}`
}

function encodingMembers({ encoding, storedLength }: StoredAttachment): string {
  return encoding === null ? '' : `,"encoding":"${encoding}","encoded_length":${storedLength}`
}

/** Whether a document rendered with these options depends only on its revision, and so has an ETag. */
export function hasEtag(doc: DocState, options: RenderOptions): boolean {
  if (options.revsInfo || options.localSeq) return false
  if (options.conflicts && losersOf(doc, conflicts).length > 0) return false
  return !(options.deletedConflicts && losersOf(doc, deletedConflicts).length > 0)
}
