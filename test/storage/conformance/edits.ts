/** Writes that the conformance suite makes, and what it reads back. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { leafRev } from '../../../src/revisions/branch.ts'
import type {
  AttachmentWrite,
  DatabaseStore,
  DocState,
  DocUpdate,
  DocWrite,
} from '../../../src/storage/engine.ts'
import { ALL } from './setup.ts'

export interface EditOptions {
  readonly deleted?: boolean
  readonly design?: boolean
  readonly attachments?: readonly AttachmentWrite[]
  readonly bytes?: number
}

/** An update that puts a new revision on top of the winner; its result is that revision. */
export function put(id: string, body = '{}', options: EditOptions = {}): DocUpdate<string> {
  return {
    id,
    bytes: options.bytes ?? body.length,
    readSet: { branches: true },
    decide: (doc) => {
      const write = successor(doc, body, options)
      return { result: write.rev, write }
    },
  }
}

/** An update that deletes a document. */
export function remove(id: string, body = '{}'): DocUpdate<string> {
  return put(id, body, { deleted: true })
}

/** The write of a new revision on top of the winner. */
export function successor(doc: DocState | null, body: string, options: EditOptions = {}): DocWrite {
  const { deleted = false, design = false, attachments = [] } = options
  const parent = doc?.branches.find((branch) => leafRev(branch) === doc.rev)
  const hash = createHash('md5').update(`${doc?.rev} ${deleted} ${body}`).digest('hex')
  const rev = `${(parent?.pos ?? 0) + 1}-${hash}`
  const ancestry = [hash, ...(parent?.ids ?? [])]
  const superseded = doc === null ? [] : [{ rev: doc.rev, deleted: doc.deleted, ancestry: null }]
  const leaf = { rev, deleted, ancestry, content: { body, attachments } }
  return { rev, deleted, sequenced: true, ...(design && { design }), revisions: [...superseded, leaf] }
}

/** An update that makes exactly this write. */
export function write(id: string, docWrite: DocWrite): DocUpdate<null> {
  return { id, bytes: 100, decide: () => ({ result: null, write: docWrite }) }
}

/** An update whose decision throws. */
export function failing(id: string, error: unknown): DocUpdate<string> {
  return {
    id,
    bytes: 10,
    decide: () => {
      throw error
    },
  }
}

/** An attachment of new bytes, with their true hashes. */
export function attachment(name: string, bytes: Uint8Array, revpos = 1): AttachmentWrite {
  const digest = `md5-${createHash('md5').update(bytes).digest('base64')}`
  const sha256 = createHash('sha256').update(bytes).digest()
  const { length } = bytes
  const content = { sha256, bytes }
  return { name, type: 'text/plain', revpos, digest, length, encoding: null, storedLength: length, content }
}

/** All that a document state shows, as plain data that outlives the callback. */
export type DocSnapshot = ReturnType<typeof snapshot>

/** Copies a document state, with what comes in no order put into one. */
export function snapshot(doc: DocState) {
  const { id, seq, rev, deleted } = doc
  if (doc.hasOneLeaf) assert.deepEqual(doc.branches.map(leafRev), [rev])
  return {
    id,
    seq,
    rev,
    deleted,
    branches: doc.branches
      .map((branch) => ({
        rev: leafRev(branch),
        pos: branch.pos,
        leaf: branch.leaf,
        ids: [...branch.ids],
        deleted: branch.deleted,
      }))
      .sort(byRev),
    revisions: [...doc.revisions()]
      .map((row) => ({
        rev: row.rev,
        deleted: row.deleted,
        leaf: row.leaf,
        body: doc.body(row.rev),
        attachments: doc.attachments(row.rev).map((stored) => ({ ...stored })),
      }))
      .sort(byRev),
  }
}

function byRev(a: { rev: string }, b: { rev: string }): number {
  return a.rev < b.rev ? -1 : 1
}

/** One document as it stands; null for one that never was. */
export async function readOne(store: DatabaseStore, id: string): Promise<DocSnapshot | null> {
  const [found] = await store.readDocs([id], (doc) => doc && snapshot(doc))
  return found ?? null
}

/** The whole feed, read in pages. */
export async function readFeed(store: DatabaseStore, pageSize = 50): Promise<DocSnapshot[]> {
  const docs: DocSnapshot[] = []
  for (let more = true; more; ) {
    const page = await store.readChanges({ since: docs.at(-1)?.seq ?? 0 }, { limit: pageSize }, snapshot)
    docs.push(...page.rows)
    more = page.more
  }
  return docs
}

/** The ids of the live documents, as a range over all of them lists them. */
export async function liveIds(store: DatabaseStore): Promise<string[]> {
  return (await store.readRange({}, ALL, (doc) => doc.id)).rows
}

/** Sorts ids by their bytes. */
export function sortIds(ids: Iterable<string>): string[] {
  return [...ids].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
}
