import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as rest } from 'node:timers/promises'
import type { Test } from 'tap'
import type { BlobUpload, UploadedBlob } from '../../../src/storage/blob-leases.ts'
import type { AttachmentWrite, DatabaseStore, DocUpdate } from '../../../src/storage/engine.ts'
import { auditContents, namedContents } from './audit.ts'
import { attachment, put, readOne } from './edits.ts'
import { errorOf, type OpenStore, only, openNotes, rejectsWith, type StorageCases } from './setup.ts'

const EMPTY = { blobs: 0, bytes: 0 }
const CHUNK = 256 * 1024

/** Stages a content in these pieces. */
export async function stageOf(
  store: DatabaseStore,
  pieces: readonly Uint8Array[],
): Promise<{ stage: BlobUpload; staged: UploadedBlob }> {
  const stage = await store.uploadBlob()
  for (const piece of pieces) await stage.append(piece)
  return { stage, staged: await stage.finish() }
}

/** An update that gives a document a staged content as its only attachment `x`. */
export function naming(id: string, { blob, digest, length }: UploadedBlob): DocUpdate<string> {
  const facts = { name: 'x', type: 'text/plain', revpos: 1, encoding: null, storedLength: length }
  const named: AttachmentWrite = { ...facts, digest, length, content: { blob } }
  return put(id, '{}', { attachments: [named] })
}

/** Waits for what a restart has left to go. */
export async function untilSwept(t: Test, opened: OpenStore, when: string): Promise<void> {
  const named = await namedContents(opened.store)
  for (let tries = 0; tries < 500 && (await opened.keptContents()).blobs !== named.blobs; tries++)
    await rest(10)
  await auditContents(t, opened, when)
}

async function contentOf(store: DatabaseStore, id: string): Promise<Buffer | undefined> {
  const doc = await readOne(store, id)
  const [stored] = doc?.revisions.find(({ leaf }) => leaf)?.attachments ?? []
  if (stored === undefined) return undefined
  return Buffer.from((await store.readBlob(stored.blob, 0, stored.storedLength)) ?? [])
}

function digestOf(bytes: Uint8Array): string {
  return `md5-${createHash('md5').update(bytes).digest('base64')}`
}

/** Contents that come in pieces, and who holds them. */
export const stagingCases: StorageCases = {
  'a content that comes in pieces of any size is stored whole, once a revision names it': async (
    t,
    makeEngine,
  ) => {
    const opened = await openNotes(t, makeEngine)
    const sizes = [
      [0],
      [],
      [5],
      [1, 2, 3, 0, 4],
      [CHUNK],
      [CHUNK - 1, 1],
      [CHUNK - 1, 2],
      [1, CHUNK, CHUNK - 1],
      [100_000, 1024 * 1024, 1024 * 1024, 7],
      [3_000_000],
    ]
    const contents: Buffer[] = []
    for (const [n, pieces] of sizes.entries()) {
      const bytes = pieces.map((size) => randomBytes(size))
      const whole = Buffer.concat(bytes)
      contents.push(whole)
      const { stage, staged } = await stageOf(opened.store, bytes)
      t.hasStrict(staged, { digest: digestOf(whole), length: whole.length }, `pieces of ${pieces}`)
      await only(opened.store.updateDocs([naming(`d${n}`, staged)]))
      await stage.release()
    }
    await auditContents(t, opened, 'when all are released')
    const again = await opened.reopen()
    for (const [n, whole] of contents.entries()) {
      const found = await contentOf(again.store, `d${n}`)
      t.ok(found?.equals(whole), `content ${n} of ${whole.length} bytes`)
    }
    await auditContents(t, again, 'after a restart')
  },

  'a finished content is read before anything names it': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const { stage, staged } = await stageOf(store, [Buffer.from('hello')])
    t.same(Buffer.from((await store.readBlob(staged.blob, 1, 3)) ?? []), Buffer.from('ell'))
    await stage.release()
    t.equal(await store.readBlob(staged.blob, 0, 3), null)
  },

  'the caller may change a chunk once it is stored': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const stage = await store.uploadBlob()
    const piece = Buffer.alloc(300_000, 'a')
    const whole = Buffer.concat([Buffer.alloc(300_000, 'a'), Buffer.alloc(300_000, 'b')])
    await stage.append(piece)
    piece.fill('b')
    await stage.append(piece)
    piece.fill('c')
    const { blob, digest } = await stage.finish()
    t.equal(digest, digestOf(whole))
    t.ok(Buffer.from((await store.readBlob(blob, 0, 600_000)) ?? []).equals(whole))
    await stage.release()
  },

  'a content that nothing names goes with its release, whole or not': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const bytes = randomBytes(5_000_000)
    const { stage } = await stageOf(opened.store, [bytes])
    const unfinished = await opened.store.uploadBlob()
    await unfinished.append(bytes.subarray(1))
    const unused = await opened.store.uploadBlob()
    t.ok((await opened.keptContents()).bytes > 9_000_000, 'both are stored')
    await Promise.all([stage.release(), unfinished.release(), unused.release()])
    t.same(await opened.keptContents(), EMPTY)
  },

  'an upload can be released while a chunk is being stored': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const stage = await opened.store.uploadBlob()
    await stage.append(randomBytes(1_000_000))
    const appending = stage.append(randomBytes(1_000_000))
    await stage.release()
    await appending
    t.same(await opened.keptContents(), EMPTY)
    await t.rejects(stage.append(randomBytes(300_000)))
    await t.rejects(stage.finish())
    t.same(await opened.keptContents(), EMPTY)
  },

  'an upload can be released twice, and is gone after both calls': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const { stage } = await stageOf(opened.store, [randomBytes(600_000)])
    const other = await stageOf(opened.store, [randomBytes(600_000)])
    await Promise.all([stage.release().then(() => stage.release()), stage.release()])
    t.equal((await opened.keptContents()).blobs, 1, 'the other stands')
    await stage.release()
    await only(opened.store.updateDocs([naming('a', other.staged)]))
    await other.stage.release()
    await other.stage.release()
    await auditContents(t, opened, 'afterwards')
  },

  'a content that is stored already takes the place of an equal one': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const bytes = randomBytes(700_000)
    await only(opened.store.updateDocs([put('a', '{}', { attachments: [attachment('x', bytes)] })]))
    const [stored] = (await readOne(opened.store, 'a'))?.revisions[0]?.attachments ?? []
    const { stage, staged } = await stageOf(opened.store, [
      bytes.subarray(0, 300_000),
      bytes.subarray(300_000),
    ])
    t.equal(staged.blob, stored?.blob)
    await only(opened.store.updateDocs([naming('b', staged)]))
    await stage.release()
    const unnamed = await stageOf(opened.store, [bytes])
    await unnamed.stage.release()
    await auditContents(t, opened, 'afterwards')
    t.ok((await contentOf(opened.store, 'b'))?.equals(bytes))
  },

  'an attachment of new bytes shares an equal uploaded content': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const bytes = randomBytes(1000)
    const { stage, staged } = await stageOf(opened.store, [bytes])
    await only(opened.store.updateDocs([put('a', '{}', { attachments: [attachment('x', bytes)] })]))
    await stage.release()
    t.equal((await readOne(opened.store, 'a'))?.revisions[0]?.attachments[0]?.blob, staged.blob)
    t.ok((await contentOf(opened.store, 'a'))?.equals(bytes))
    await auditContents(t, opened, 'afterwards')
  },

  'equal uploads share one blob until the last is released': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const bytes = randomBytes(600_000)
    const [first, second, third] = [
      await stageOf(opened.store, [bytes]),
      await stageOf(opened.store, [bytes]),
      await stageOf(opened.store, [bytes]),
    ]
    t.same([second.staged, third.staged], [first.staged, first.staged])
    await first.stage.release()
    await third.stage.release()
    t.equal((await opened.store.readBlob(first.staged.blob, 0, 10))?.length, 10, 'the second holds it')
    await second.stage.release()
    t.same(await opened.keptContents(), EMPTY)
    const again = await stageOf(opened.store, [bytes])
    t.not(again.staged.blob, first.staged.blob, 'a number is not given again')
    await only(opened.store.updateDocs([naming('a', again.staged)]))
    await again.stage.release()
    await auditContents(t, opened, 'afterwards')
  },

  'equal contents may be uploaded at the same time': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const bytes = randomBytes(900_000)
    const pieces = [bytes.subarray(0, 400_000), bytes.subarray(400_000)]
    const all = await Promise.all([1, 2, 3, 4].map(() => stageOf(opened.store, pieces)))
    const blobs = new Set(all.map(({ staged }) => staged.blob))
    t.equal(blobs.size, 1)
    const outcomes = await Promise.all(
      all.slice(0, 2).map(({ staged }, n) => only(opened.store.updateDocs([naming(`d${n}`, staged)]))),
    )
    t.equal(outcomes.length, 2)
    await Promise.all(all.map(({ stage }) => stage.release()))
    await auditContents(t, opened, 'afterwards')
    t.ok((await contentOf(opened.store, 'd1'))?.equals(bytes))
  },

  'one lets go of a content while another finishes an equal one': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    for (let round = 0; round < 20; round++) {
      const bytes = randomBytes(round % 2 === 0 ? 1000 : 300_000)
      const first = await stageOf(opened.store, [bytes])
      const second = await opened.store.uploadBlob()
      await second.append(bytes)
      const [, staged] = await Promise.all([first.stage.release(), second.finish()])
      await only(opened.store.updateDocs([naming(`d${round}`, staged)]))
      await second.release()
      t.ok((await contentOf(opened.store, `d${round}`))?.equals(bytes), `round ${round}`)
    }
    await auditContents(t, opened, 'afterwards')
  },

  'an update that names a content which is gone is rejected alone': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const { stage, staged } = await stageOf(opened.store, [Buffer.from('gone')])
    await stage.release()
    const outcomes = await opened.store.updateDocs([
      put('a'),
      naming('b', staged),
      naming('c', { ...staged, blob: 12_345 }),
      put('d'),
    ])
    t.same(
      outcomes.map((outcome) => (errorOf(outcome) as { code?: string } | undefined)?.code),
      [undefined, 'no_attachment', 'no_attachment', undefined],
    )
    t.same(await readOne(opened.store, 'b'), null)
    t.hasStrict(await opened.store.view(), { updateSeq: 2, docCount: 2 })
    await auditContents(t, opened, 'afterwards')
  },

  'a restart removes unnamed uploads and keeps named ones': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const kept = await stageOf(opened.store, [randomBytes(700_000)])
    await only(opened.store.updateDocs([naming('a', kept.staged)]))
    const bytes = randomBytes(6_000_000)
    const whole = await stageOf(opened.store, [bytes])
    const begun = await opened.store.uploadBlob()
    await begun.append(bytes.subarray(5))
    const again = await opened.reopen()
    await untilSwept(t, again, 'when it was swept')
    await rejectsWith(t, begun.append(Buffer.from('late')), 'unavailable')
    await rejectsWith(t, begun.finish(), 'unavailable')
    await rejectsWith(t, opened.store.uploadBlob(), 'unavailable')
    await rejectsWith(t, opened.store.referenceBlob(1), 'unavailable')
    await Promise.all([kept.stage.release(), whole.stage.release(), begun.release()])
    t.notSame(await contentOf(again.store, 'a'), undefined)
  },

  'a content that a restart left is named by an equal upload, or goes': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const bytes = randomBytes(3_000_000)
    await stageOf(opened.store, [randomBytes(2_000_000)])
    await stageOf(opened.store, [bytes])
    const again = await opened.reopen()
    const { stage, staged } = await stageOf(again.store, [bytes])
    await only(again.store.updateDocs([naming('a', staged)]))
    await stage.release()
    await untilSwept(t, again, 'when it was swept')
    t.ok((await contentOf(again.store, 'a'))?.equals(bytes))
  },

  'a reference keeps an unnamed blob until the last one is released': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const bytes = randomBytes(500_000)
    const { stage, staged } = await stageOf(opened.store, [bytes])
    const pins = await Promise.all([1, 2].map(() => opened.store.referenceBlob(staged.blob)))
    t.hasStrict(pins[0], { digest: staged.digest, length: bytes.length })
    await stage.release()
    pins[0]?.release()
    pins[0]?.release()
    const read = await opened.store.readBlob(staged.blob, 0, bytes.length)
    t.ok(read !== null && bytes.equals(read), 'the other pin holds it')
    pins[1]?.release()
    await untilSwept(t, opened, 'afterwards')
    t.equal(await opened.store.referenceBlob(staged.blob), null)
  },

  'a reference describes a stored content, and its release removes nothing': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const file = attachment('x', randomBytes(400_000))
    await only(opened.store.updateDocs([put('a', '{}', { attachments: [file] })]))
    const [stored] = (await readOne(opened.store, 'a'))?.revisions[0]?.attachments ?? []
    const pin = await opened.store.referenceBlob(stored?.blob ?? -1)
    t.hasStrict(pin, { digest: file.digest, length: 400_000 })
    pin?.release()
    pin?.release()
    t.equal(await opened.store.referenceBlob(12_345), null)
    await auditContents(t, opened, 'afterwards')
  },
}
