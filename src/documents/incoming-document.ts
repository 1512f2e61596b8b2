/** Reads a client's document from its JSON, and checks everything that does not depend on stored data. */

import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import type { Limits, Settings } from '../core/types.ts'
import { parseRevisions } from '../revisions/branch.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import { memberValue, type SplitDocument, splitAnyDocument } from './body.ts'
import {
  type FollowingAttachment,
  type IncomingAttachment,
  invalidAttachment,
  readAttachments,
} from './incoming-attachments.ts'

/** Members that a client may send back as it got them; a write ignores them (protocol.md 2.4). */
const DROPPED = new Set(['_revs_info', '_local_seq', '_conflicts', '_deleted_conflicts'])
const UNDERSTOOD = new Set(['_id', '_rev', '_revisions', '_deleted', '_attachments'])

/** Maximum of JSON values in a design document. JSON.parse reads it at once, which takes 10 ms for so many. */
const MAX_DESIGN_VALUES = 50_000

const NO_ATTACHMENTS: IncomingDoc['attachments'] = []

export interface IncomingDoc {
  /** `_id` as sent, unchecked; undefined without `_id`. */
  readonly id: unknown
  /**
   * From `_revisions`, else from `_rev`: the generation, and the ids of the revision and its ancestors, newest first.
   */
  readonly path: { readonly pos: number; readonly ids: readonly string[] } | null
  readonly deleted: boolean
  /** The text to store. */
  readonly body: string
  readonly attachments: readonly IncomingAttachment[]
}

/**
 * Reads one document: at once, unless it is long or has attachments; these are read in steps.
 * @param text its JSON
 * @param address the id from the address, if any; it counts more than `_id`
 * @throws invalid_json, document_not_object, too_deep, doc_validation, invalid_rev, bad_request (attachments),
 * document_too_large, attachment_too_large
 */
export function readDocument(
  text: string,
  settings: Settings,
  address?: string,
): IncomingDoc | Promise<IncomingDoc> {
  return readSplit(splitAnyDocument(text), settings, address)
}

/** Like {@link readDocument}, for a document whose text is already split. */
export function readSplit(
  split: SplitDocument | Promise<SplitDocument>,
  settings: Settings,
  address?: string,
): IncomingDoc | Promise<IncomingDoc> {
  if (split instanceof Promise) return split.then((parts) => readSplit(parts, settings, address))
  const members = readMembers(split, settings.limits, address)
  const attachments = members.special.get('_attachments')
  return attachments === undefined
    ? documentOf(members, NO_ATTACHMENTS)
    : withAttachments(members, attachments, settings)
}

async function withAttachments(members: Members, json: string, settings: Settings): Promise<IncomingDoc> {
  const { attachments, follows } = await readAttachments(json, settings)
  const doc = documentOf(members, attachments)
  const [first] = follows
  if (first !== undefined) throw invalidAttachment(first.name)
  return doc
}

/**
 * Reads a document whose attachments may follow it.
 * @returns the document without the attachments that follow, those attachments, and the names of all attachments in
 * the order sent
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
  const members = readMembers(await splitAnyDocument(text), settings.limits, address)
  const json = members.special.get('_attachments') ?? '{}'
  const { attachments, follows, names } = await readAttachments(json, settings)
  return { doc: documentOf(members, attachments), follows, names }
}

/** The members of a document; all but its attachments and its revision are checked. */
interface Members {
  /** `_id` as sent; undefined without `_id`. */
  readonly id: unknown
  readonly special: ReadonlyMap<string, string>
  readonly deleted: boolean
  readonly body: string
}

function readMembers(
  { special, body, values }: SplitDocument,
  limits: Limits,
  address: string | undefined,
): Members {
  for (const name of special.keys()) {
    if (!UNDERSTOOD.has(name) && !DROPPED.has(name)) throw badMember(name)
  }
  const id = memberValue(special, '_id')
  const name = address ?? (typeof id === 'string' ? id : '')
  if (isLonger(body, limits.maxDocumentSize)) throw new CouchError('document_too_large', name)
  if (values > MAX_DESIGN_VALUES && isDesignId(name)) {
    const reason = `a design document holds more than ${MAX_DESIGN_VALUES} JSON values`
    throw new CouchError('document_too_large', reason)
  }
  const deleted = special.get('_deleted') ?? 'false'
  if (deleted !== 'true' && deleted !== 'false') throw badMember('_deleted')
  return { id, special, deleted: deleted === 'true', body }
}

/** Whether a text has more bytes in UTF-8. A UTF-16 unit has at most three. */
function isLonger(text: string, bytes: number): boolean {
  return 3 * text.length > bytes && Buffer.byteLength(text) > bytes
}

function documentOf(
  { id, special, deleted, body }: Members,
  attachments: IncomingDoc['attachments'],
): IncomingDoc {
  return { id, path: readPath(special), deleted, body, attachments }
}

function badMember(name: string): CouchError {
  return new CouchError('doc_validation', `Bad special document member: ${name.slice(0, 256)}`)
}

function readPath(special: ReadonlyMap<string, string>): { pos: number; ids: string[] } | null {
  if (special.has('_revisions')) return parseRevisions(memberValue(special, '_revisions'))
  if (!special.has('_rev')) return null
  const rev = parseRev(memberValue(special, '_rev'))
  return { pos: rev.pos, ids: [rev.id] }
}

/** The revision that a document names; null without one. */
export function namedRev(doc: IncomingDoc): Rev | null {
  return doc.path === null ? null : { pos: doc.path.pos, id: doc.path.ids[0] as string }
}
