/** A reader beside the store: it says what the store says, or leaves it to the store. */
import { readFileSync, statSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { plainPage } from '../../../src/changes/page.ts'
import type { ChangesOptions, FeedReader } from '../../../src/changes/rows.ts'
import { asCouchError } from '../../../src/core/errors.ts'
import { DEFAULT_LIMITS, type UserCtx } from '../../../src/core/types.ts'
import { bulkGet } from '../../../src/documents/bulk-get.ts'
import { openDocument } from '../../../src/documents/open.ts'
import { missingRevsAnswer, revsDiff } from '../../../src/documents/revs-diff.ts'
import { sequenceToken } from '../../../src/storage/sequence.ts'
import { Files } from '../../../src/storage/sqlite/files.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { copiesOf, LEFT_TO_STORE, type LiveReader } from '../../../src/storage/storage-engine.ts'
import { OPTIONS as OPTIONS_OF_FEED } from '../../changes/helpers.ts'
import { ADMIN, ANNA, body, type Opened, openOn, text } from '../../documents/helpers.ts'
import { temporaryFolder } from '../../helpers/server.ts'

/** Six of them give a file large pages, without which there is no reader. */
const FILLING = 'x'.repeat(60_000)

/** How many locks this process has on a file. Closing any file descriptor of it would give them all up (fcntl(2)). */
function locksOf(path: string): number {
  const own = `${process.pid} `
  const inode = `:${statSync(path).ino} `
  const locks = readFileSync('/proc/locks', 'utf8').split('\n')
  return locks.filter((lock) => lock.includes(own) && lock.includes(inode)).length
}

async function setUp(t: Test) {
  const dataDir = await temporaryFolder(t)
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  const opened = await openOn(engine)
  const open = () => copiesOf(engine).openLiveReader('notes')
  const path = new Files(dataDir).path('notes')
  const locks = locksOf(path)
  t.ok(locks > 0)
  t.throws(open, LEFT_TO_STORE, 'a small file')
  t.equal(locksOf(path), locks, 'the locks of the store, which another process must see')
  for (let n = 0; n < 6; n++) await opened.put(`filling-${n}`, { text: FILLING })
  const reader = open()
  t.teardown(() => reader.close())
  t.ok(locksOf(path) >= locks)
  return { open, reader, path, ...opened }
}

const LEFT = 'left to the store'

/** What was read, or the code of the error. */
async function outcomeOf(reading: Promise<Uint8Array | string>): Promise<string> {
  return reading.then(
    (read) => Buffer.from(read).toString(),
    (error: unknown) => (error === LEFT_TO_STORE ? LEFT : asCouchError(error).code),
  )
}

const IDS = ['a', 'b', '_local/c']
const OPTIONS = [{}, { revs: true }, { conflicts: true, localSeq: true }, { deleted: true }]

const PAGES: readonly Partial<ChangesOptions>[] = [
  {},
  { style: 'all_docs' },
  { includeDocs: true },
  { includeDocs: true, conflicts: true },
]

/** The outcomes of reads of the feed, by the store or the reader. */
function readPages(from: FeedReader, user: UserCtx, token: string): Promise<string>[] {
  const requests = [0, 5, token, 'now'].flatMap((since) =>
    [Infinity, 2].flatMap((limit) =>
      PAGES.map((options) => ({ since, limit, options: { ...OPTIONS_OF_FEED, ...options } })),
    ),
  )
  return requests.map(async (request) => {
    const page = plainPage(from, user, request)
    return outcomeOf(page.then(({ bytes, ...rest }) => `${JSON.stringify(rest)}${Buffer.from(bytes)}`))
  })
}

/** The outcomes of all kinds of reads, by the database or the reader. */
async function readAll(
  from: Pick<Opened, 'database' | 'store'> | LiveReader,
  user: UserCtx,
  revs: readonly string[],
  token: string,
): Promise<string[]> {
  const asked = body({ a: revs, b: revs })
  const listed = body({ docs: [{ id: 'a' }, { id: 'b', rev: revs.at(-1) ?? '1-a' }, { id: 'none' }] })
  const outcomes = readPages('database' in from ? from.store : from, user, token)
  if ('database' in from) {
    const { database } = from
    for (const id of IDS)
      for (const options of OPTIONS)
        outcomes.push(outcomeOf(database.open(user, id, options).then(({ json }) => json)))
    outcomes.push(outcomeOf(database.revsDiff(user, asked)), outcomeOf(database.missingRevs(user, asked)))
    outcomes.push(outcomeOf(text(database.bulkGet(user, listed, { revs: true, latest: true }))))
  } else {
    for (const id of IDS)
      for (const options of OPTIONS)
        outcomes.push(outcomeOf(openDocument(from, user, id, options).then(({ json }) => json)))
    outcomes.push(outcomeOf(revsDiff(from, user, asked)), outcomeOf(missingRevsAnswer(from, user, asked)))
    outcomes.push(outcomeOf(text(bulkGet(from, user, listed, { revs: true, latest: true }, DEFAULT_LIMITS))))
  }
  return Promise.all(outcomes)
}

const id = fc.constantFrom('a', 'b')
const action = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('put'), id, long: fc.boolean(), files: fc.nat(2) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('conflict'), id, deleted: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove'), id }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('purge'), id }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('local'), long: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('security'), name: fc.constantFrom('anna', 'ben') }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('limit'), limit: fc.constantFrom(1, 3, 1000, 20_000) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('compact') }) },
)
type Action = typeof action extends fc.Arbitrary<infer A> ? A : never

const TWO_FILES = { a: { data: 'YQ==' }, b: { data: 'Yg==' } }
const MANY_FILES = Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`${n}`, { data: 'YQ==' }]))

async function act({ database, store, put, get, replicate }: Opened, action: Action, n: number) {
  const revOf = async (id: string) => (await get(id).catch(() => ({})))._rev as string | undefined
  switch (action.kind) {
    case 'put': {
      const { id, long, files } = action as { id: string; long: boolean; files: number }
      const _rev = await revOf(id)
      const _attachments = [{}, TWO_FILES, MANY_FILES][files]
      await put(id, { n, _attachments, ...(_rev && { _rev }), ...(long && { text: FILLING.repeat(2) }) })
      return
    }
    case 'conflict': {
      const { id, deleted } = action as { id: string; deleted: boolean }
      const ids = [n, 0].map((each) => each.toString(16).padStart(32, '0'))
      await replicate(id, { start: 2, ids, deleted, doc: { n } })
      return
    }
    case 'remove': {
      const { id } = action as { id: string }
      const rev = await revOf(id)
      if (rev !== undefined) await database.remove(ADMIN, id, rev)
      return
    }
    case 'purge': {
      const { id } = action as { id: string }
      const rev = await revOf(id)
      if (rev !== undefined) await database.purge(ADMIN, body({ [id]: [rev] }))
      return
    }
    case 'local': {
      const { long } = action as { long: boolean }
      const _rev = await revOf('_local/c')
      await put('_local/c', { n, ...(_rev && { _rev }), ...(long && { text: FILLING.repeat(2) }) })
      return
    }
    case 'security': {
      const names = [(action as { name: string }).name]
      const none = { names: [], roles: [] }
      await database.setSecurity(ADMIN, { admins: none, members: { names, roles: [] } })
      return
    }
    case 'limit':
      await database.setRevsLimit(ADMIN, (action as { limit: number }).limit)
      return
    default:
      await store.compact()
  }
}

t.test('after any history, it says what the database says, or nothing', async (t) => {
  const opened = await setUp(t)
  let { reader } = opened
  let [same, left, n, token] = [0, 0, 0, '0']
  const holds = fc.asyncProperty(fc.array(action, { minLength: 1, maxLength: 12 }), async (actions) => {
    for (const action of actions) {
      n += 1
      await act(opened, action, n)
      const revs = [`2-${n.toString(16).padStart(32, '0')}`, `${1 + (n % 3)}-${'0'.repeat(32)}`]
      const tokenBefore = token
      const { epochs, updateSeq } = await opened.store.view()
      token = sequenceToken(epochs, updateSeq)
      for (const user of [ADMIN, ANNA]) {
        const expected = await readAll(opened, user, revs, tokenBefore)
        const read = await readAll(reader, user, revs, tokenBefore)
        for (const [at, outcome] of read.entries()) {
          if (outcome === expected[at]) same += 1
          else if (outcome === LEFT) left += 1
          else throw new Error(`${action.kind}, read ${at}: ${outcome} in place of ${expected[at]}`)
        }
      }
      if (reader.isUsable) continue
      // With such a limit, an ancestry may take long to read.
      await opened.database.setRevsLimit(ADMIN, 1000)
      reader.close()
      reader = opened.open()
      t.teardown(() => reader.close())
    }
  })
  await fc.assert(holds, { numRuns: 40 })
  t.ok(3 * same > left, `${same} of ${same + left} reads were answered`)
})

t.test('damage is left to the store, wherever it is', async (t) => {
  const { reader, path, put, database } = await setUp(t)
  await put('a', { text: 'some words' })
  await put('_local/c', { text: 'some words' })
  await database.setSecurity(ADMIN, {
    admins: { names: [], roles: [] },
    members: { names: ['anna'], roles: [] },
  })
  const read = (id: string, user = ANNA) =>
    outcomeOf(openDocument(reader, user, id, {}).then(({ json }) => json))
  const file = new Sqlite(path)
  t.teardown(() => file.close())
  const damages = [
    [`UPDATE revision SET body = replace(body, 'some', 'same')`, 'a'],
    [`UPDATE doc SET deleted = 1 WHERE id = 'a'`, 'a'],
    [`UPDATE local SET body = replace(body, 'some', 'same')`, '_local/c'],
  ] as const
  for (const [sql, id] of damages) {
    t.match(await read(id), /some words/)
    file.exec('BEGIN')
    t.ok(file.prepare(sql).run().changes > 0)
    file.exec('COMMIT')
    t.equal(await read(id), LEFT, sql)
    t.ok(reader.isUsable)
    file.exec(sql.replace("'some', 'same'", "'same', 'some'").replace('deleted = 1', 'deleted = 0'))
  }
  t.match(await read('a'), /some words/)
  const page = () =>
    outcomeOf(
      plainPage(reader, ANNA, { since: 5, limit: 5, options: OPTIONS_OF_FEED }).then(({ bytes }) => bytes),
    )
  t.match(await page(), /"id":"a"/)
  // A row that is not where it should be.
  file.exec(`UPDATE doc SET seq = seq + 50 WHERE id = 'a'`)
  t.equal(await page(), LEFT)
  file.exec(`UPDATE doc SET seq = seq - 50 WHERE id = 'a'`)
  t.match(await page(), /"id":"a"/)
  for (const sql of [
    `UPDATE security SET body = replace(body, 'anna', 'hans'), version = version + 1`,
    `UPDATE meta SET value = 7 WHERE key = 'settings_version'`,
  ])
    file.exec(sql)
  t.equal(await read('a'), LEFT)
  t.notOk(reader.isUsable)
})

t.test('counts that are damaged are left to the store', async (t) => {
  const { open, path, put } = await setUp(t)
  const file = new Sqlite(path)
  t.teardown(() => file.close())
  for (const change of ['value = value + 1', "value = 'x'", 'value = CAST(value AS TEXT)', 'checksum = 1']) {
    await put(`a-${change}`, { n: 1 })
    const reader = open()
    t.teardown(() => reader.close())
    const read = () =>
      outcomeOf(
        plainPage(reader, ADMIN, { since: 'now', limit: 5, options: OPTIONS_OF_FEED }).then(
          ({ state }) => state,
        ),
      )
    t.match(await read(), /^\d/)
    file.exec(`UPDATE meta SET ${change} WHERE key = 'update_seq'`)
    t.equal(await read(), LEFT, change)
    t.notOk(reader.isUsable)
  }
})
