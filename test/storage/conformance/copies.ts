import { copyFile, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import type { Test } from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { type CopyFacts, copiesOf, type EngineCopies } from '../../../src/storage/storage-engine.ts'
import { attachment, put, remove } from './edits.ts'
import { type MakeEngine, openWithCopies, type StorageCases } from './setup.ts'

const SECRET = 'what only the body of one document holds'

/** An engine that makes copies, with a database of everything, and a folder for copies; null: it makes none. */
async function setUp(t: Test, makeEngine: MakeEngine) {
  const opened = await openWithCopies(t, makeEngine)
  if (opened === null) return null
  const { store } = opened
  const folder = await mkdtemp(join(tmpdir(), 'settee-copies-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  await store.updateDocs([
    put('a', JSON.stringify({ SECRET }), { attachments: [attachment('f', Buffer.alloc(700_000, 'x'))] }),
    put('b', '{"n":1}'),
    put('b', '{"n":2}'),
    remove('c'),
  ])
  await store.updateLocals([
    { id: '_local/x', decide: () => ({ result: null, write: { rev: 1, body: '{}' } }) },
  ])
  return { ...opened, folder }
}

async function factsOf(copies: EngineCopies): Promise<CopyFacts> {
  const snapshot = await copies.openSnapshot('notes')
  try {
    return await snapshot.facts()
  } finally {
    snapshot.close()
  }
}

/** Each changes the database in a way of its own. */
const CHANGES: Record<string, (store: DatabaseStore) => Promise<unknown>> = {
  document: (store) => store.updateDocs([put('b', '{"n":3}')]),
  deletion: (store) => store.updateDocs([remove('b')]),
  'local document': (store) =>
    store.updateLocals([
      { id: '_local/x', decide: () => ({ result: 0, write: { rev: 2, body: '{"y":1}' } }) },
    ]),
  security: (store) =>
    store.updateSettings(() => ({ result: 0, write: { security: { members: { names: ['m'] } } } })),
  settings: (store) => store.updateSettings(() => ({ result: 0, write: { revsLimit: 7 } })),
  purge: (store) =>
    store.purgeDocs([
      {
        id: 'b',
        decide: (doc) => {
          const revs = doc?.revisions().map(({ rev }) => rev) ?? []
          return { result: 0, write: { purged: [doc?.rev ?? ''], removed: revs, rest: null } }
        },
      },
    ]),
}

export const copyCases: StorageCases = {
  'a copy holds what the database held when it was begun, whatever is written meanwhile': async (
    t,
    makeEngine,
  ) => {
    const made = await setUp(t, makeEngine)
    if (made === null) return
    const { copies, store, folder } = made
    const { updateSeq, docCount, deletedCount } = await store.view()
    const snapshot = await copies.openSnapshot('notes')
    t.teardown(() => snapshot.close())
    t.ok(snapshot.bytes > 700_000)
    const writes: Promise<unknown>[] = []
    for (let n = 0; n < 50; n++)
      writes.push(store.updateDocs([put(`new-${n}`, '{}'), put('b', `{"n":${n}}`)]))
    const before = await snapshot.facts()
    await Promise.all(writes)
    const told: number[] = []
    t.strictSame(await snapshot.facts(({ done, total }) => told.push(done / total)), before)
    t.ok(told.every((share) => share >= 0 && share <= 1))
    await snapshot.copyTo(join(folder, 'copy'))
    snapshot.close()
    snapshot.close()
    t.strictSame(await copies.checkCopy(join(folder, 'copy')), { damage: null, facts: before })
    t.match(before, { updateSeq, docCount, deletedCount, localCount: 1, attachmentBytes: 700_000 })
    t.notSame((await factsOf(copies)).digest, before.digest)
    t.equal((await store.view()).updateSeq, updateSeq + 100)
  },

  'the digest and the fingerprint change with whatever is written': async (t, makeEngine) => {
    const made = await setUp(t, makeEngine)
    if (made === null) return
    const { copies, store } = made
    let last = await factsOf(copies)
    t.strictSame(await factsOf(copies), last)
    for (const [name, change] of Object.entries(CHANGES)) {
      const before = await copies.fingerprint('notes')
      await change(store)
      const facts = await factsOf(copies)
      t.not(facts.digest, last.digest, name)
      const after = await copies.fingerprint('notes')
      t.ok(before === null || before !== after, name)
      last = facts
    }
  },

  'a database that nobody writes to has one fingerprint, and its contents one digest': async (
    t,
    makeEngine,
  ) => {
    const made = await setUp(t, makeEngine)
    if (made === null) return
    const { copies, reopenEngine } = made
    const facts = await factsOf(copies)
    const again = await reopenEngine()
    const fingerprint = await copiesOf(again).fingerprint('notes')
    t.type(fingerprint, 'string')
    const store = await again.openDatabase('notes')
    await store.readDocs(['a'], () => null)
    t.strictSame(await factsOf(copiesOf(again)), facts)
    await store.close()
    t.equal(await copiesOf(again).fingerprint('notes'), fingerprint)
    t.equal(await copiesOf(again).fingerprint('none'), null)
    await t.rejects(copiesOf(again).openSnapshot('none'), { code: 'no_database' })
  },

  'what is damaged, or is something else, is no copy': async (t, makeEngine) => {
    const made = await setUp(t, makeEngine)
    if (made === null) return
    const { copies, folder } = made
    const good = join(folder, 'good')
    const snapshot = await copies.openSnapshot('notes')
    const facts = await snapshot.facts()
    await snapshot.copyTo(good)
    await t.rejects(snapshot.copyTo(good), 'a file that is there is not written over')
    snapshot.close()
    t.strictSame(await copies.checkCopy(good), { damage: null, facts })
    const bytes = await readFile(good)

    const damaged = async (name: string, change: (path: string) => Promise<unknown>) => {
      const path = join(folder, name)
      await copyFile(good, path)
      await change(path)
      const found = await copies.checkCopy(path).catch((error: Error) => error)
      t.ok(found instanceof Error || found.damage !== null, `${name}: ${JSON.stringify(found)}`)
      return found
    }
    const flipped = (at: number) => async (path: string) => {
      const changed = Buffer.from(bytes)
      changed[at] = (changed[at] as number) ^ 1
      await writeFile(path, changed)
    }
    const without = (sql: string) => async (path: string) => {
      const file = new Sqlite(path)
      file.exec(sql)
      file.close()
    }
    for (const sql of [
      'DELETE FROM attachment',
      'DELETE FROM revision WHERE leaf',
      'UPDATE revision SET leaf = 1 - leaf',
      'UPDATE doc SET seq = -seq',
      'UPDATE doc SET num = num + (1 << 40)',
      'UPDATE doc SET num = -num',
      'UPDATE attachment SET revision = revision + (1 << 40)',
      'UPDATE chunk SET blob = blob + (1 << 40)',
      'UPDATE chunk SET position = position + 1000',
      "UPDATE meta SET value = value + 1 WHERE key = 'doc_count'",
      "UPDATE local SET body = body || ' '",
    ])
      t.match(await damaged(sql.replaceAll(/\W/g, ''), without(sql)), { damage: { count: Number } }, sql)
    t.match(await damaged('body', flipped(bytes.indexOf(SECRET))), {
      damage: { count: 1, parts: [{ kind: 'revision' }] },
    })
    t.match(await damaged('content', flipped(bytes.indexOf(Buffer.alloc(64, 'x')))), {
      damage: { count: 1, parts: [{ kind: 'attachment' }] },
    })
    t.match(await damaged('cut', (path) => truncate(path, bytes.length - 8192)), Error)
    t.match(await damaged('half', (path) => truncate(path, Math.floor(bytes.length / 2))), Error)
    t.match(await damaged('empty', (path) => truncate(path, 0)), Error)
    t.match(await damaged('head', flipped(3)), Error)
    t.match(await damaged('missing', (path) => rm(path)), /missing/)
    await copies.copyCatalog(join(folder, 'catalog'))
    await t.rejects(copies.checkCopy(join(folder, 'catalog')))
    await t.rejects(copies.checkCatalogCopy(good))
  },

  'what belongs to the server can be copied': async (t, makeEngine) => {
    const made = await setUp(t, makeEngine)
    if (made === null) return
    const { copies, catalog, folder } = made
    await catalog.writeRecords([{ kind: 'token', key: 'k', value: '{"v":1}' }])
    await copies.copyCatalog(join(folder, 'server'))
    t.equal(await copies.checkCatalogCopy(join(folder, 'server')), catalog.serverUuid)
    t.ok((await readFile(join(folder, 'server'))).includes('{"v":1}'))
    await truncate(join(folder, 'server'), 5000)
    await t.rejects(copies.checkCatalogCopy(join(folder, 'server')))
  },
}
