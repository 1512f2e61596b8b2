/** Random edits of notes, on a device or directly on the server. */

import { call } from './call.ts'
import { body, type Device } from './devices.ts'
import type { Random } from './random.ts'

const NOTES = Array.from({ length: 9 }, (_, n) => `note-${n}`)
const DESIGNS = ['_design/one', '_design/two']
const REJECTED = 'rejected-'

/** Whether the validate function refuses the document, so that it stays on its device. */
export function isRejected(id: string): boolean {
  return id.startsWith(REJECTED)
}

export const VALIDATION = {
  _id: '_design/validation',
  validate_doc_update: `function (doc) { if (doc._id.indexOf('${REJECTED}') === 0) throw { forbidden: 'not here' } }`,
}

const EDITS = {
  write: 10,
  remove: 3,
  removeAndMakeAnew: 1,
  editLoser: 2,
  resolve: 2,
  writeRejected: 1,
} as const
export type Edit = keyof typeof EDITS

export function chooseEdit(random: Random): Edit {
  return random.weighted(EDITS)
}

/** Makes an edit on a device. A live sync may change the document between the read and the write. */
export async function editOnDevice(db: Device, edit: Edit, random: Random): Promise<string> {
  const id = random.chance(0.1) ? random.pick(DESIGNS) : random.pick(NOTES)
  const members = newMembers(id, random)
  try {
    await EDITORS[edit](db, id, members)
    return `${edit} ${id}`
  } catch (error) {
    const { status } = error as PouchDB.Failure
    if (status !== 409 && status !== 404) throw error
    return `${edit} ${id}: ${status}`
  }
}

const EDITORS: Readonly<Record<Edit, (db: Device, id: string, members: Members) => Promise<unknown>>> = {
  write: async (db, id, members) => db.put(merged(await found(db, id), id, members)),
  remove: async (db, id) => db.remove(await db.get(id)),
  removeAndMakeAnew: async (db, id, members) => {
    await db.remove(await db.get(id))
    await db.put(merged(null, id, members))
  },
  editLoser: async (db, id, members) => {
    const { _conflicts: [loser] = [] } = await db.get(id, { conflicts: true })
    if (loser !== undefined) await db.put(merged(await db.get(id, { rev: loser }), id, members))
  },
  resolve: async (db, id, members) => {
    const { _conflicts = [], ...doc } = await db.get(id, { conflicts: true })
    if (_conflicts.length === 0) return
    await db.put(merged(doc, id, members))
    for (const loser of _conflicts) await db.remove(id, loser)
  },
  writeRejected: async (db, _id, members) => db.put({ _id: `${REJECTED}${members.value}`, ...members }),
}

interface Members {
  readonly value: string
  /** null removes the attachment, undefined leaves it unchanged. */
  readonly attachment: string | null | undefined
}

function newMembers(id: string, random: Random): Members {
  // Few values, so that two devices sometimes make the same edit.
  const value = random.chance(0.2) ? 'the same' : random.next().toString(36).slice(2)
  // Fixed bytes per document: PouchDB mixes up the attachments of conflicting leaves, also with CouchDB.
  const attachment = random.pick([undefined, undefined, id, null])
  return { value, attachment: id.startsWith('_design/') ? undefined : attachment }
}

function merged(doc: PouchDB.StoredDoc | null, _id: string, { value, attachment }: Members): PouchDB.Doc {
  const { _attachments, ...rest } = doc ?? {}
  const kept = attachment === undefined ? _attachments : undefined
  const made = typeof attachment === 'string' ? fixedAttachment(attachment) : undefined
  const attachments = kept ?? made
  return {
    ...(rest as object),
    _id,
    value,
    ...(attachments !== undefined && { _attachments: attachments }),
  }
}

function fixedAttachment(id: string): Record<string, PouchDB.Attachment> {
  return { file: { content_type: 'text/plain', data: Buffer.from(`of ${id}`).toString('base64') } }
}

function found(db: Device, id: string): Promise<PouchDB.StoredDoc | null> {
  return db.get(id).catch((error: PouchDB.Failure) => {
    if (error.status === 404) return null
    throw error
  })
}

/** A client that edits directly on the server, like a script with curl. */
export async function editOnServer(
  server: { readonly url: string },
  database: string,
  random: Random,
): Promise<string> {
  const id = random.pick(NOTES)
  const path = `/${database}/${id}`
  const { status, json } = await call(server, 'GET', path)
  const doc = status === 200 ? (json as PouchDB.StoredDoc) : null
  if (doc !== null && random.chance(0.3)) {
    const { status } = await call(server, 'DELETE', `${path}?rev=${doc._rev}`)
    return `DELETE ${id}: ${status}`
  }
  const { value } = newMembers(id, random)
  const sent = { ...(doc === null ? {} : { _rev: doc._rev, ...body(doc) }), value }
  const { status: put } = await call(server, 'PUT', path, { body: sent })
  return `PUT ${id}: ${put}`
}
