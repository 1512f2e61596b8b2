/** Calls for one document. */
import { ask, askText, pathOf } from '../../api/client.ts'
import { Failure } from '../../api/failure.ts'
import { documentText, type OpenDocument, openDocument } from './document-text.ts'

export interface Saved {
  readonly id: string
  readonly rev: string
}

interface KeyRow {
  readonly error?: string
  readonly value?: { readonly rev: string; readonly deleted?: boolean }
}

/**
 * Reads a document, a deleted one too.
 * @param rev absent: the winner
 * @throws Failure, with the status 404 where there never was such a document or where the revision is no longer stored
 */
export async function readDocument(
  database: string,
  id: string,
  rev: string | undefined,
  signal: AbortSignal,
): Promise<OpenDocument> {
  const isLocal = id.startsWith('_local/')
  const read = async (of: string | undefined) => {
    // With `rev`, the server tells the ancestors only (docs/protocol.md 4).
    const facts =
      of === undefined ? { conflicts: true, deleted_conflicts: true, revs_info: true } : { revs: true }
    const query = isLocal ? {} : { rev: of, ...facts }
    return openDocument(await askText(pathOf(database, id), { query, signal }))
  }
  try {
    return await read(rev)
  } catch (error) {
    const isMissing = error instanceof Failure && error.status === 404
    const winner = isMissing && rev === undefined && !isLocal ? await winnerOf(database, id, signal) : null
    if (winner === null) throw error
    return read(winner)
  }
}

/** @returns the winner of a document, which may be deleted; null if there never was such a document */
async function winnerOf(database: string, id: string, signal: AbortSignal): Promise<string | null> {
  const { rows } = await ask<{ readonly rows: readonly KeyRow[] }>(pathOf(database, '_all_docs'), {
    json: { keys: [id] },
    signal,
  })
  return rows[0]?.value?.rev ?? null
}

/**
 * Stores a document.
 * @param id undefined: the server chooses one
 * @param body the user's text
 * @throws Failure, with the status 409 if `rev` is no longer a leaf
 */
export async function saveDocument(
  database: string,
  id: string | undefined,
  body: string,
  base: Pick<OpenDocument, 'rev' | 'attachmentsText'> | null,
): Promise<Saved> {
  const text = documentText(body, { rev: base?.rev ?? null, attachmentsText: base?.attachmentsText ?? null })
  return ask<Saved>(id === undefined ? pathOf(database) : pathOf(database, id), {
    method: id === undefined ? 'POST' : 'PUT',
    body: text,
    headers: { 'Content-Type': 'application/json' },
  })
}

interface BulkRow {
  readonly id: string
  readonly error?: string
  readonly reason?: string
}

/**
 * Ends a conflict between two revisions in one request: the loser is deleted, and `merged`, if given, becomes the next
 * revision of the one that is kept.
 * @throws Failure if one of the two has changed meanwhile, or the server refuses one
 */
export async function settleConflict(
  database: string,
  kept: OpenDocument,
  loser: OpenDocument,
  merged: string | null,
): Promise<void> {
  const deletion = JSON.stringify({ _id: loser.id, _rev: loser.rev, _deleted: true })
  const update =
    merged === null
      ? []
      : [documentText(merged, { id: kept.id, rev: kept.rev, attachmentsText: kept.attachmentsText })]
  const rows = await ask<readonly BulkRow[]>(pathOf(database, '_bulk_docs'), {
    body: `{"docs":[${[...update, deletion].join()}]}`,
    headers: { 'Content-Type': 'application/json' },
  })
  const refused = rows.find(({ error }) => error !== undefined)
  if (refused === undefined) return
  throw new Failure(
    refused.error === 'conflict' ? 409 : 0,
    refused.error ?? 'error',
    refused.reason ?? refused.error ?? '',
    null,
  )
}

/** @returns the address of an attachment of a revision, relative to the server */
export function attachmentPath(database: string, id: string, name: string): string {
  return `${pathOf(database, id)}/${name.split('/').map(encodeURIComponent).join('/')}`
}
