/** A database with something of everything, and all that can be read of it: what was damaged must not be read as what was written. */
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { NotLoaded } from '../../../src/storage/postgres/loaded-document.ts'
import { attachment, put, remove, snapshot, write } from './edits.ts'
import { ALL } from './setup.ts'

const IDS = Array.from({ length: 60 }, (_, n) => `note-${String(n).padStart(3, '0')}`)
const LOCALS = IDS.slice(0, 10).map((id) => `_local/${id}`)

/** Fills a database with documents of all kinds. */
export async function fillNotes(store: DatabaseStore): Promise<void> {
  const text = (n: number) => JSON.stringify({ n, text: `words ${n} `.repeat(1 + (n % 7) * 40) })
  await store.updateDocs(IDS.map((id, n) => put(id, text(n))))
  await store.updateDocs(IDS.slice(0, 30).map((id, n) => put(id, text(n + 100))))
  await store.updateDocs(IDS.slice(0, 5).map((id) => remove(id)))
  for (const id of IDS.slice(20, 40)) {
    const bytes = Buffer.from(`the picture of ${id} `.repeat(id.endsWith('5') ? 20_000 : 20))
    await store.updateDocs([put(id, text(7), { attachments: [attachment('a picture.jpg', bytes)] })])
  }
  const branch = { rev: `1-${'f'.repeat(32)}`, deleted: false, ancestry: ['f'.repeat(32)] }
  for (const id of IDS.slice(40, 50)) {
    const [doc] = await store.readDocs([id], (found) => found && { rev: found.rev, deleted: found.deleted })
    const winner = { rev: doc?.rev ?? '', deleted: doc?.deleted ?? false }
    const revisions = [{ ...branch, content: { body: text(9), attachments: [] } }]
    await store.updateDocs([write(id, { ...winner, sequenced: true, revisions })])
  }
  await store.updateLocals(
    LOCALS.map((id) => ({ id, decide: () => ({ result: null, write: { rev: 1, body: text(id.length) } }) })),
  )
  await store.updateSettings(() => ({
    result: null,
    write: { security: { admins: { names: ['anna'] }, members: { names: ['ben'] } } },
  }))
}

/** All that can be read, by name. */
export async function readAll(store: DatabaseStore): Promise<Map<string, unknown>> {
  const found = new Map<string, unknown>()
  const tried = async (name: string, read: () => Promise<unknown>) => {
    try {
      found.set(name, await read())
    } catch (error) {
      found.set(name, error)
    }
  }
  const readSet = { body: true, branches: true, ancestry: 'leaves' } as const
  const rows = (read: { rows: unknown[] }) => {
    for (const row of read.rows as { id: string; name?: string }[]) found.set(`${row.name} ${row.id}`, row)
  }
  const lenient = (kind: string) => (doc: Parameters<typeof snapshot>[0]) => {
    try {
      return { name: kind, ...snapshot(doc) }
    } catch (error) {
      if (error instanceof NotLoaded) throw error
      return { name: kind, id: doc.id, error }
    }
  }
  for (const id of IDS) {
    await tried(
      `doc ${id}`,
      async () => (await store.readDocs([id], (doc) => doc && snapshot(doc), readSet))[0],
    )
    await tried(`plain ${id}`, async () => {
      const [doc] = await store.readDocs(
        [id],
        (one) => one && [one.rev, one.deleted, one.seq, one.body(one.rev)],
      )
      return doc
    })
  }
  await tried('range', async () => rows(await store.readRange({}, { ...ALL, readSet }, lenient('range'))))
  await tried('feed', async () => rows(await store.readChanges({ since: 0 }, ALL, lenient('feed'))))
  await tried('locals', async () => {
    for (const local of (await store.readLocalRange({}, ALL)).rows) found.set(`local ${local.id}`, local)
  })
  for (const id of LOCALS) await tried(`one ${id}`, async () => (await store.readLocals([id]))[0])
  for (const blob of Array.from({ length: 20 }, (_, n) => n + 1)) {
    await tried(`blob ${blob}`, async () => {
      const parts: Buffer[] = []
      for (let at = 0; ; at += 100_000) {
        const part = await store.readBlob(blob, at, 100_000)
        if (part === null || part.length === 0) return Buffer.concat(parts).toString()
        parts.push(Buffer.from(part))
      }
    })
  }
  await tried('security', async () => {
    const { security } = await store.view()
    // Of a damaged one nobody knows whom it lets in.
    return security?.members?.roles?.join() === '_admin' ? null : security
  })
  return found
}

interface WithRevisions {
  readonly revisions?: readonly {
    readonly rev: string
    readonly leaf: boolean
    readonly body: string | null
  }[]
}

/** Whether what was read is what was written. Superseded revisions may be missing, and so may their bodies. */
export function isTrue(read: unknown, written: unknown): boolean {
  if (JSON.stringify(read) === JSON.stringify(written)) return true
  const [found, expected] = [read, written] as WithRevisions[]
  if (!found?.revisions || !expected?.revisions) return false
  const readRevisions = found.revisions.filter(({ leaf, body }) => leaf || body !== null)
  const isRead = (one: { leaf: boolean }) =>
    one.leaf || readRevisions.some((each) => JSON.stringify(each) === JSON.stringify(one))
  const revisions = expected.revisions.filter(isRead)
  return JSON.stringify({ ...found, revisions: readRevisions }) === JSON.stringify({ ...expected, revisions })
}
