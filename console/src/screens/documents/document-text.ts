/** A document's text: what the server adds to it, and what the user edits. */
import { formatJson, membersOf } from '../../parts/json-editor/exact-json.ts'

export interface Attachment {
  readonly name: string
  readonly type: string
  /** In bytes. */
  readonly length: number
  /** The generation of the revision that brought it. */
  readonly revpos: number
}

export interface OpenDocument {
  readonly id: string
  /** null for a document that is not stored yet. */
  readonly rev: string | null
  readonly isDeleted: boolean
  /** The members that belong to the user, formatted; all numbers as they are stored. */
  readonly body: string
  readonly attachments: readonly Attachment[]
  /** The JSON text of `_attachments`, which a save sends back so that they are kept; null without attachments. */
  readonly attachmentsText: string | null
  /** Leaves beside this revision. */
  readonly conflicts: readonly string[]
  readonly deletedConflicts: readonly string[]
  /** The revisions of this branch, newest first. */
  readonly history: readonly RevisionInfo[]
}

export interface RevisionInfo {
  readonly rev: string
  /** `unknown`: the server says it for the winner's branch only. */
  readonly status: 'available' | 'missing' | 'deleted' | 'unknown'
}

interface Stub {
  readonly content_type: string
  readonly length?: number
  readonly revpos?: number
}

/** The members that the server adds. */
interface Special {
  readonly _id: string
  readonly _rev?: string
  readonly _deleted?: boolean
  readonly _attachments?: Readonly<Record<string, Stub>>
  readonly _conflicts?: readonly string[]
  readonly _deleted_conflicts?: readonly string[]
  readonly _revs_info?: readonly RevisionInfo[]
  readonly _revisions?: { readonly start: number; readonly ids: readonly string[] }
}

/** @param text a document as the server sends it */
export function openDocument(text: string): OpenDocument {
  const members = membersOf(text)
  const ofServer = members.filter(({ name }) => name.startsWith('_'))
  const ofUser = members.filter(({ name }) => !name.startsWith('_'))
  const listed = (list: typeof members) => `{${list.map(({ from, to }) => text.slice(from, to)).join()}}`
  const special = JSON.parse(listed(ofServer)) as Special
  const attachments = ofServer.find(({ name }) => name === '_attachments')
  return {
    id: special._id,
    rev: special._rev ?? null,
    isDeleted: special._deleted ?? false,
    body: formatJson(listed(ofUser)),
    attachments: Object.entries(special._attachments ?? {}).map(attachmentOf),
    attachmentsText: attachments === undefined ? null : text.slice(attachments.valueFrom, attachments.to),
    conflicts: special._conflicts ?? [],
    deletedConflicts: special._deleted_conflicts ?? [],
    history: special._revs_info ?? historyOf(special),
  }
}

function historyOf({
  _deleted,
  _revisions: { start, ids } = { start: 0, ids: [] },
}: Special): RevisionInfo[] {
  return ids.map((id, back) => ({
    rev: `${start - back}-${id}`,
    status: back > 0 ? 'unknown' : _deleted ? 'deleted' : 'available',
  }))
}

function attachmentOf([name, stub]: [string, Stub]): Attachment {
  return { name, type: stub.content_type, length: stub.length ?? 0, revpos: stub.revpos ?? 0 }
}

interface SavedAs {
  readonly id?: string
  /** The revision that it replaces; null for a new document. */
  readonly rev: string | null
  readonly attachmentsText: string | null
}

/**
 * @param body the user's text, an object
 * @returns the document's text as it is sent; the user's members as they were written
 */
export function documentText(body: string, { id, rev, attachmentsText }: SavedAs): string {
  const members = [
    ...(id === undefined ? [] : [`"_id":${JSON.stringify(id)}`]),
    ...(rev === null ? [] : [`"_rev":${JSON.stringify(rev)}`]),
    ...(attachmentsText === null ? [] : [`"_attachments":${attachmentsText}`]),
    ...membersOf(body).map(({ from, to }) => body.slice(from, to)),
  ]
  return `{${members.join()}}`
}

/** @returns the first member that users cannot set by hand, since its name begins with `_`; null: none */
export function reservedMember(body: string): { readonly name: string; readonly at: number } | null {
  const member = membersOf(body).find(({ name }) => name.startsWith('_'))
  return member === undefined ? null : { name: member.name, at: member.from }
}
