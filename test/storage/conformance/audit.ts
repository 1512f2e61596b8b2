/** Holds what a store counts against what its feed shows. */
import type { Test } from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { type DocSnapshot, liveIds, readFeed, sortIds } from './edits.ts'
import type { KeptContents, OpenStore } from './setup.ts'

/** Checks every count of a store and returns its feed; where documents were purged, the newest may be one of them. */
export async function audit(
  t: Test,
  store: DatabaseStore,
  when: string,
  { purged = false } = {},
): Promise<DocSnapshot[]> {
  const feed = await readFeed(store)
  const seqs = feed.map((doc) => doc.seq)
  const live = feed.filter((doc) => !doc.deleted)
  const view = await store.view()
  const {
    updateSeq,
    epochs,
    docCount,
    deletedCount,
    revsLimit,
    purgedInfosLimit,
    designVersion,
    settingsVersion,
    security,
    sizes,
  } = await store.info()
  t.same(seqs, [...new Set(seqs)].sort(ascending), `${when}: the feed ascends`)
  if (purged) t.ok(view.updateSeq >= (seqs.at(-1) ?? 0), `${when}: no row is beyond updateSeq`)
  else t.equal(view.updateSeq, seqs.at(-1) ?? 0, `${when}: the newest row carries updateSeq`)
  t.equal(view.docCount, live.length, `${when}: docCount is what a recount finds`)
  t.equal(view.deletedCount, feed.length - live.length, `${when}: deletedCount is what a recount finds`)
  t.hasStrict(
    view,
    {
      ...{ updateSeq, epochs, docCount, deletedCount, revsLimit, purgedInfosLimit },
      ...{ designVersion, settingsVersion, security },
    },
    `${when}: info and view agree`,
  )
  t.equal(sizes.external, feed.reduce(externalOf, 0), `${when}: the external size is what a recount finds`)
  t.same(await liveIds(store), sortIds(live.map((doc) => doc.id)), `${when}: the range lists what lives`)
  t.equal(await store.countRange({}), live.length, `${when}: countRange counts what lives`)
  for (const seq of sample([0, ...seqs])) {
    const above = seqs.filter((other) => other > seq).length
    t.equal(await store.countChanges(seq), above, `${when}: countChanges above ${seq}`)
  }
  const winners = feed.every((doc) => doc.branches.some((branch) => branch.rev === doc.rev))
  t.ok(winners, `${when}: every winner is a leaf`)
  return feed
}

/** The contents that the revisions of a store name, each once. */
export async function namedContents(store: DatabaseStore): Promise<KeptContents> {
  const attachments = (await readFeed(store)).flatMap(({ revisions }) =>
    revisions.flatMap((revision) => revision.attachments),
  )
  const sizes = new Map(attachments.map(({ blob, storedLength }) => [blob, storedLength]))
  return { blobs: sizes.size, bytes: [...sizes.values()].reduce((sum, size) => sum + size, 0) }
}

/** Checks that a store keeps the contents that its revisions name, and nothing else. */
export async function auditContents(
  t: Test,
  { store, keptContents }: OpenStore,
  when: string,
): Promise<void> {
  t.same(
    await keptContents(),
    await namedContents(store),
    `${when}: the contents kept are those that are named`,
  )
}

function ascending(a: number, b: number): number {
  return a - b
}

function externalOf(sum: number, doc: DocSnapshot): number {
  const leaves = doc.revisions.filter((row) => row.leaf)
  const sizes = leaves.flatMap(({ body, attachments }) => [
    Buffer.byteLength(body ?? ''),
    ...attachments.map(({ length }) => length),
  ])
  return sizes.reduce((total, size) => total + size, sum)
}

function sample(seqs: readonly number[]): number[] {
  const step = Math.ceil(seqs.length / 20)
  return seqs.filter((_, index) => index % step === 0 || index === seqs.length - 1)
}
