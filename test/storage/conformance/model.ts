/** A simple model of a database, and the random updates that it and an engine are both given. */
import type { DocWrite, RevisionWrite } from '../../../src/storage/engine.ts'
import type { DocSnapshot } from './edits.ts'

/** Most edit a leaf; `leaf` and `row` pick one among those there are. */
export type Command =
  | { readonly kind: 'edit'; readonly leaf: number; readonly deleted: boolean; readonly keep: boolean }
  | { readonly kind: 'graft'; readonly pos: number; readonly deleted: boolean }
  | { readonly kind: 'grow'; readonly leaf: number }
  | { readonly kind: 'revive'; readonly row: number; readonly rewrite: boolean }
  | { readonly kind: 'look' | 'need' | 'throw' }

/** What a command does to a document: the same for the engine's state and for the model's. */
export function plan(doc: DocSnapshot | null, command: Command, mark: string): DocWrite | null {
  const change = changeOf(doc, command, mark)
  if (change === null) return null
  const leaves = new Map(doc?.branches.map((branch) => [branch.rev, branch]))
  for (const { rev, deleted, ancestry } of change) {
    if (ancestry === null) leaves.delete(rev)
    else
      leaves.set(rev, {
        rev,
        deleted,
        pos: Number.parseInt(rev, 10),
        leaf: ancestry[0] ?? '',
        ids: [...ancestry],
      })
  }
  const [winner] = [...leaves.values()].sort(
    (a, b) => Number(a.deleted) - Number(b.deleted) || b.pos - a.pos || (a.leaf < b.leaf ? 1 : -1),
  )
  if (winner === undefined) return null
  const { rev, deleted } = winner
  return { rev, deleted, sequenced: command.kind !== 'grow', revisions: change }
}

function changeOf(doc: DocSnapshot | null, command: Command, mark: string): RevisionWrite[] | null {
  const content = { body: JSON.stringify({ mark }), attachments: [] }
  if (command.kind === 'graft') {
    const ancestry = Array.from({ length: Math.ceil(command.pos / 2) }, (_, i) => `${mark}-${i}`)
    return [{ rev: `${command.pos}-${ancestry[0]}`, deleted: command.deleted, ancestry, content }]
  }
  if (command.kind === 'edit') {
    const parent = pick(doc?.branches ?? [], command.leaf)
    const rev = `${(parent?.pos ?? 0) + 1}-${mark}`
    const leaf = { rev, deleted: command.deleted, ancestry: [mark, ...(parent?.ids ?? [])], content }
    if (parent === undefined) return [leaf]
    const superseded = { rev: parent.rev, deleted: parent.deleted, ancestry: null }
    return [command.keep ? superseded : { ...superseded, content: { body: '{}', attachments: [] } }, leaf]
  }
  if (command.kind === 'grow') {
    const branch = pick(doc?.branches ?? [], command.leaf)
    if (branch === undefined || branch.ids.length >= branch.pos) return null
    return [{ rev: branch.rev, deleted: branch.deleted, ancestry: [...branch.ids, `${mark}-older`] }]
  }
  if (command.kind !== 'revive') return null
  const row = pick(doc?.revisions.filter(({ leaf }) => !leaf) ?? [], command.row)
  if (row === undefined) return null
  const ancestry = [row.rev.slice(row.rev.indexOf('-') + 1)]
  return [{ rev: row.rev, deleted: row.deleted, ancestry, ...(command.rewrite && { content }) }]
}

function pick<T>(items: readonly T[], index: number): T | undefined {
  return items[index % Math.max(1, items.length)]
}

/** The database as a Map of what each document must show. */
export class Model {
  readonly docs = new Map<string, DocSnapshot>()
  updateSeq = 0

  apply(id: string, { rev, deleted, sequenced, revisions }: DocWrite): void {
    const before = this.docs.get(id)
    if (sequenced) this.updateSeq += 1
    let doc: DocSnapshot = {
      id,
      seq: sequenced ? this.updateSeq : (before?.seq ?? -1),
      rev,
      deleted,
      branches: before?.branches ?? [],
      revisions: before?.revisions ?? [],
    }
    for (const revision of revisions) doc = withRevision(doc, revision)
    this.docs.set(id, doc)
  }

  /** Documents by their place in the feed. */
  feed(): DocSnapshot[] {
    return [...this.docs.values()].sort((a, b) => a.seq - b.seq)
  }

  live(): DocSnapshot[] {
    const docs = [...this.docs.values()].filter((doc) => !doc.deleted)
    return docs.sort((a, b) => Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)))
  }

  counts(): { updateSeq: number; docCount: number; deletedCount: number } {
    const docCount = this.live().length
    return { updateSeq: this.updateSeq, docCount, deletedCount: this.docs.size - docCount }
  }
}

function withRevision(doc: DocSnapshot, { rev, deleted, ancestry, content }: RevisionWrite): DocSnapshot {
  const stored = doc.revisions.find((row) => row.rev === rev)
  const row = {
    rev,
    deleted,
    leaf: ancestry !== null,
    body: content?.body ?? stored?.body ?? null,
    attachments: [],
  }
  const pos = Number.parseInt(rev, 10)
  const branch = ancestry && { rev, pos, leaf: rev.slice(`${pos}-`.length), ids: [...ancestry], deleted }
  const byRev = (a: { rev: string }, b: { rev: string }) => (a.rev < b.rev ? -1 : 1)
  const branches = doc.branches.filter((other) => other.rev !== rev)
  return {
    ...doc,
    branches: (branch === null ? branches : [...branches, branch]).sort(byRev),
    revisions: [...doc.revisions.filter((other) => other.rev !== rev), row].sort(byRev),
  }
}
