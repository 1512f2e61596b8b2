/**
 * Contents in PostgreSQL under many openers: uploads of equal contents, documents that name them, readers and compactions
 * at the same time. Whatever a document names is stored whole, and nothing else is left.
 */
import { createHash } from 'node:crypto'
import t from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { namedContents } from '../../storage/conformance/audit.ts'
import { put, readOne } from '../../storage/conformance/edits.ts'
import { errorOf } from '../../storage/conformance/setup.ts'
import { naming } from '../../storage/conformance/uploads.ts'
import { postgresMakers } from '../../storage/postgres-engine.ts'

t.setTimeout(240_000)
const NODES = 3
const WORKERS = 4
const ROUNDS = 60
/** Few contents and few documents, so that they meet. */
const CONTENTS = 4
const DOCS = 6

/** One of a few contents, of one to three chunks. */
function contentOf(n: number): Buffer {
  const seed = createHash('sha256').update(String(n)).digest()
  return Buffer.alloc(200_000 * (n + 1), seed)
}

/** A number below `end`, from a fixed sequence. */
function dice(seed: number): (end: number) => number {
  let state = seed
  return (end) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff
    return (state >> 8) % end
  }
}

async function work(store: DatabaseStore, seed: number): Promise<void> {
  const roll = dice(seed)
  for (let round = 0; round < ROUNDS; round++) {
    const id = `doc${roll(DOCS)}`
    const action = roll(10)
    if (action < 5) await uploadFor(store, id, contentOf(roll(CONTENTS)))
    else if (action < 7) await store.updateDocs([put(id, `{"round":${round}}`)])
    else if (action < 9) await read(store, id)
    else await store.compact()
  }
}

async function uploadFor(store: DatabaseStore, id: string, bytes: Buffer): Promise<void> {
  const upload = await store.uploadBlob()
  try {
    await upload.append(bytes)
    const [outcome] = await store.updateDocs([naming(id, await upload.finish())])
    const error = errorOf(outcome)
    if (error !== undefined) throw error
  } finally {
    await upload.release()
  }
}

/** Reads a content under a reference: it must be whole, although its document may be changed meanwhile. */
async function read(store: DatabaseStore, id: string): Promise<void> {
  const doc = await readOne(store, id)
  const [attachment] = doc?.revisions.find(({ leaf }) => leaf)?.attachments ?? []
  if (attachment === undefined) return
  const reference = await store.referenceBlob(attachment.blob)
  if (reference === null) return
  const hash = createHash('md5')
  for (let at = 0; at < attachment.length; at += 100_000) {
    const bytes = await store.readBlob(attachment.blob, at, 100_000)
    if (bytes === null) throw new Error('a content was removed while it was referenced')
    hash.update(bytes)
  }
  reference.release()
  if (`md5-${hash.digest('base64')}` !== reference.digest) throw new Error('a content is not whole')
}

t.test('contents stay whole while they are uploaded, named, read and removed on three nodes', async (t) => {
  const data = await postgresMakers(t).makeData(t)
  const engines = Array.from({ length: NODES }, () => data.open())
  await (await engines[0]!.openCatalog()).create('notes')
  const stores = await Promise.all(engines.map((engine) => engine.openDatabase('notes')))
  const workers = stores.flatMap((store, node) =>
    Array.from({ length: WORKERS }, (_, worker) => work(store, 1 + node * WORKERS + worker)),
  )
  const results = await Promise.allSettled(workers)
  for (const result of results) if (result.status === 'rejected') t.fail(String(result.reason?.stack))
  const [store] = stores as [(typeof stores)[number]]
  for (let n = 0; n < DOCS; n++) await read(store, `doc${n}`)
  // References are ended without being awaited: the second compaction finds all of them ended.
  for (let n = 0; n < 2; n++) await store.compact()
  t.same(await data.keptContents(), await namedContents(store))
})
