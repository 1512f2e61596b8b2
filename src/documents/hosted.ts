/**
 * Hosted mode, docs/hosted.md: what a tenant may not bring. No design documents, since they are programs, and no
 * attachments; their tombstones neither, so that what stands in a data folder from before stays as it is. Pure.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from './auth-design.ts'
import type { IncomingDoc } from './incoming.ts'

const USERS_DATABASE = '_users'

/** What is looked at of an edit. */
export interface HostedEdit {
  readonly id: string
  readonly doc: Pick<IncomingDoc, 'deleted' | 'body' | 'attachments'>
  /** The edit is of this attachment alone, its removal too. */
  readonly attachment?: string
}

/**
 * What hosted mode refuses an edit with, whoever sends it and whatever is stored; null: it may be written.
 * @param database its name
 */
export function hostedRefusal(database: string, { id, doc, attachment }: HostedEdit): CouchError | null {
  if (attachment !== undefined) return new CouchError('hosted_attachment')
  const isOwn = !doc.deleted && isOwnDesign(database, id, doc.body)
  if (isDesignId(id) && !isOwn) return new CouchError('hosted_design')
  return doc.attachments.length > 0 ? new CouchError('hosted_attachment') : null
}

/**
 * Whether a document is settee's own `_design/_auth`, the one design document there is in hosted mode.
 * @param body its text as it is stored
 */
export function isOwnDesign(database: string, id: string, body: string): boolean {
  return mayBeOwnDesign(database, id) && body === AUTH_DESIGN_BODY
}

/** As {@link isOwnDesign} as far as the address tells it. */
export function mayBeOwnDesign(database: string, id: string): boolean {
  return database === USERS_DATABASE && id === AUTH_DESIGN_ID
}
