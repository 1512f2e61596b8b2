/**
 * CouchDB's upload form for browsers, protocol.md 3.7: a document as the field `_doc`, or an existing one named by
 * `_rev`, and the files of the field `_attachments`, which take the place of its attachments of the same names.
 */
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { Settings } from '../core/types.ts'
import { formatRev, parseRev } from '../revisions/rev.ts'
import type { DocState } from '../storage/engine.ts'
import type { Staging } from './attachments.ts'
import type { Body } from './database.ts'
import type { DocumentReader } from './document-reader.ts'
import { type IncomingDoc, readDocument } from './incoming.ts'
import {
  checkAttachmentName,
  checkNewAttachmentName,
  type IncomingAttachment,
} from './incoming-attachments.ts'
import { headerParameter, type Part } from './multipart.ts'
import { findParts } from './multipart-document.ts'
import { bodyText } from './request-body.ts'

export interface UploadForm {
  /** As a client would send it, without the files. */
  readonly doc: IncomingDoc
  readonly files: readonly { readonly name: string; readonly type: string; readonly part: Part }[]
}

/**
 * Reads a form.
 * @param id the document's
 * @throws bad_request for what is no such form, not_found for `_rev` of a document that never was, conflict for one
 *   that is not kept; and as readDocument
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
    return part === undefined ? undefined : bodyText(body, part.start, part.end)
  }
  const files = parts.filter((part) => disposition(part, 'name') === '_attachments').flatMap(readFile)
  if (new Set(files.map(({ name }) => name)).size < files.length) {
    throw new CouchError('bad_request', 'Duplicate attachments')
  }
  const text = field('_doc')
  if (text !== undefined) return { doc: await readDocument(text, settings, id), files }
  const rev = field('_rev')
  if (rev === undefined) throw new CouchError('bad_request', 'The form has neither `_doc` nor `_rev`.')
  return { doc: await storedDocument(store, id, rev), files }
}

/** The document of a form with its files, staged. @throws attachment_too_large; and as the store */
export async function stageForm(
  { doc, files }: UploadForm,
  body: Body,
  staging: Staging,
): Promise<IncomingDoc> {
  const names = new Set(files.map(({ name }) => name))
  const attachments: IncomingAttachment[] = doc.attachments.filter(({ name }) => !names.has(name))
  for (const { name, type, part } of files) {
    attachments.push({
      name,
      type,
      revpos: undefined,
      content: await staging.take(body, part, { name, type, encoding: null }),
    })
  }
  return { ...doc, attachments }
}

function disposition({ headers }: Part, parameter: string): string | undefined {
  return headerParameter(headers.get('content-disposition') ?? '', parameter)
}

/** None of a file field that was left empty: browsers send that as a file without a name. */
function readFile(part: Part): UploadForm['files'] {
  const name = disposition(part, 'filename') ?? ''
  if (name === '') return []
  checkAttachmentName(name)
  checkNewAttachmentName(name)
  return [{ name, type: part.headers.get('content-type') || 'application/octet-stream', part }]
}

/** A stored revision as a client would send it back, its attachments as stubs. */
async function storedDocument(store: DocumentReader, id: string, text: string): Promise<IncomingDoc> {
  const named = parseRev(text.trim())
  const rev = formatRev(named.pos, named.id)
  const [doc] = await store.readDocs([id], (state) => sentBack(state, rev))
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
