/**
 * Reads documents with attachments from multipart bodies: multipart/related (protocol.md 7.2), and CouchDB's upload
 * form for browsers (protocol.md 3.7).
 */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isLocalId } from '../core/ids.ts'
import type { Settings } from '../core/types.ts'
import { formatRev, parseRev } from '../revisions/rev.ts'
import type { DocState } from '../storage/engine.ts'
import type { AttachmentUploads } from './attachment-uploads.ts'
import type { Body, DocumentReader } from './database.ts'
import {
  checkAttachmentName,
  checkNewAttachmentName,
  type FollowingAttachment,
  type IncomingAttachment,
} from './incoming-attachments.ts'
import { type IncomingDoc, readDocument, readLeadingDocument } from './incoming-document.ts'
import { headerParameter, MultipartScanner, type Part } from './multipart.ts'
import { bodyLength, bodySteps, documentText } from './request-body.ts'

/** Bytes scanned in one step. */
const SLICE = 256 * 1024

/** A document, and the byte ranges of the contents that follow it in the request's body. */
interface LeadingDocument {
  /** The document without the attachments that follow. */
  readonly doc: IncomingDoc
  readonly follows: readonly { readonly attachment: FollowingAttachment; readonly part: Part }[]
  /** The index of each attachment in the document's JSON, by name. */
  readonly places: ReadonlyMap<string, number>
}

/**
 * Finds the parts of a request's body and reads the first one, the document. The other parts are the contents of its
 * attachments with `follows`. Parts and attachments are matched by the file names in the parts' headers if these are
 * exactly the attachments' names, otherwise by order, as in CouchDB.
 * @throws bad_content_type unless the first part is JSON; bad_request for an invalid multipart body, for too few or too
 * many parts, and for a part whose length differs from the document's; and as readDocument
 */
export async function readMultipart(
  body: Body,
  boundary: string,
  settings: Settings,
  address: string,
): Promise<LeadingDocument> {
  const [json, ...parts] = await findParts(body, boundary)
  const [type = ''] = (json?.headers.get('content-type') ?? '').split(';', 1)
  if (json === undefined || type.trim().toLowerCase() !== 'application/json') {
    throw new CouchError('bad_content_type')
  }
  const text = await documentText(body, settings.limits, address, json.start, json.end)
  const { doc, follows, names } = await readLeadingDocument(text, settings, address)
  const places = new Map(names.map((name, place) => [name, place]))
  // The policy refuses the document for its attachments, so the parts need no check.
  if (!settings.rules.policy.attachments && doc.attachments.length > 0) return { doc, follows: [], places }
  const matched = matchParts(inOrder(follows, places), parts)
  for (const { attachment, part } of matched) checkLength(attachment, part)
  return { doc, follows: matched, places }
}

/**
 * Uploads the attachments that follow a document. @returns the document with all its attachments @throws as {@link
 * AttachmentUploads.receiveFollowing}
 */
export async function uploadFollowing(
  { doc, follows, places }: LeadingDocument,
  body: Body,
  staging: AttachmentUploads,
): Promise<IncomingDoc> {
  const attachments = [...doc.attachments]
  for (const { attachment, part } of follows) {
    attachments.push(await staging.receiveFollowing(body, part, attachment))
  }
  return { ...doc, attachments: inOrder(attachments, places) }
}

/** The parts of a multipart body with this boundary. @throws bad_request */
async function findParts(body: Body, boundary: string): Promise<readonly Part[]> {
  const scanner = new MultipartScanner(boundary)
  const yielder = new Yielder()
  for (const slice of bodySteps(body, 0, bodyLength(body), SLICE)) {
    scanner.push(slice)
    await yielder.yieldIfDue()
  }
  return scanner.end()
}

function inOrder<T extends { readonly name: string }>(
  attachments: readonly T[],
  places: ReadonlyMap<string, number>,
): readonly T[] {
  return attachments.toSorted((a, b) => (places.get(a.name) ?? 0) - (places.get(b.name) ?? 0))
}

function matchParts(
  follows: readonly FollowingAttachment[],
  parts: readonly Part[],
): { attachment: FollowingAttachment; part: Part }[] {
  if (parts.length !== follows.length) {
    const expected = `The document has ${follows.length} attachments that follow it`
    throw new CouchError('bad_request', `${expected}, but the multipart body has ${parts.length}.`)
  }
  const byName = new Map(parts.map((part) => [fileName(part), part]))
  const isNamed = follows.every(({ name }) => byName.has(name))
  return follows.map((attachment, at) => ({
    attachment,
    part: (isNamed ? byName.get(attachment.name) : parts[at]) as Part,
  }))
}

function fileName({ headers }: Part): string | undefined {
  return headerParameter(headers.get('content-disposition') ?? '', 'filename')
}

function checkLength({ storedLength }: FollowingAttachment, { start, end }: Part): void {
  if (storedLength === undefined || storedLength === end - start) return
  const isLonger = end - start > storedLength
  throw new CouchError('bad_request', `attachment ${isLonger ? 'longer' : 'shorter'} than expected`)
}

interface UploadForm {
  /** The document as a client would send it, without the files. */
  readonly doc: IncomingDoc
  readonly files: readonly { readonly name: string; readonly type: string; readonly part: Part }[]
}

/**
 * Reads CouchDB's upload form. The form has a document in the field `_doc`, or names a stored one by `_rev`. The files
 * of the field `_attachments` replace attachments of the same names.
 * @param id the document's id
 * @throws bad_request for another kind of form; not_found for `_rev` of a document that never existed; conflict for a
 * revision without a stored body; and as readDocument
 */
export async function readForm(
  store: DocumentReader,
  body: Body,
  boundary: string,
  settings: Settings,
  id: string,
): Promise<UploadForm> {
  if (isLocalId(id)) throw new CouchError('bad_request', '_local documents do not accept attachments.')
  const parts = await findParts(body, boundary)
  const field = (name: string) => {
    const part = parts.findLast((each) => disposition(each, 'name') === name)
    return part === undefined ? undefined : documentText(body, settings.limits, id, part.start, part.end)
  }
  const files = parts.filter((part) => disposition(part, 'name') === '_attachments').flatMap(readFile)
  if (new Set(files.map(({ name }) => name)).size < files.length) {
    throw new CouchError('bad_request', 'Duplicate attachments')
  }
  const text = await field('_doc')
  if (text !== undefined) return { doc: await readDocument(text, settings, id), files }
  const rev = await field('_rev')
  if (rev === undefined) throw new CouchError('bad_request', 'The form has neither `_doc` nor `_rev`.')
  return { doc: await storedDocument(store, id, rev.text), files }
}

/** Uploads the files of a form. @returns the document with its files @throws attachment_too_large; and as the store */
export async function uploadForm(
  { doc, files }: UploadForm,
  body: Body,
  staging: AttachmentUploads,
): Promise<IncomingDoc> {
  const names = new Set(files.map(({ name }) => name))
  const attachments: IncomingAttachment[] = doc.attachments.filter(({ name }) => !names.has(name))
  for (const { name, type, part } of files) {
    attachments.push({
      name,
      type,
      revpos: undefined,
      content: await staging.receive(body, part, { name, type, encoding: null }),
    })
  }
  return { ...doc, attachments }
}

function disposition({ headers }: Part, parameter: string): string | undefined {
  return headerParameter(headers.get('content-disposition') ?? '', parameter)
}

/** Returns no file for an empty file field, which browsers send as a file without a name. */
function readFile(part: Part): UploadForm['files'] {
  const name = disposition(part, 'filename') ?? ''
  if (name === '') return []
  checkAttachmentName(name)
  checkNewAttachmentName(name)
  return [{ name, type: part.headers.get('content-type') || 'application/octet-stream', part }]
}

/** A stored revision as a client would send it back, with its attachments as stubs. */
async function storedDocument(store: DocumentReader, id: string, text: string): Promise<IncomingDoc> {
  const named = parseRev(text.trim())
  const rev = formatRev(named.pos, named.id)
  const [doc] = await store.readDocs([id], (state) => sentBack(state, rev), { revs: [rev] })
  return { ...(doc as Omit<IncomingDoc, 'path'>), path: { pos: named.pos, ids: [named.id] } }
}

function sentBack(state: DocState | null, rev: string): Omit<IncomingDoc, 'path'> {
  if (state === null) throw new CouchError('not_found')
  const body = state.body(rev)
  if (body === null) throw new CouchError('conflict')
  const attachments = state
    .attachments(rev)
    .map(({ name, type }) => ({ name, type, revpos: undefined, content: null }))
  return { id: undefined, deleted: false, body, attachments }
}
