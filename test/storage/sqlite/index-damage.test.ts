/**
 * No reader of an index file gets a changed row, value, reduction or count. Files of an older settee are read and checked as
 * well.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import type { IndexedDoc, IndexRow, IndexStore } from '../../../src/storage/index-store.ts'
import { FileErrors, PageCaches } from '../../../src/storage/sqlite/database-access.ts'
import { isIndexDamaged } from '../../../src/storage/sqlite/index-check.ts'
import { COUNT_FACTOR } from '../../../src/storage/sqlite/index-checksums.ts'
import { SqliteIndexStores } from '../../../src/storage/sqlite/index-stores.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { randomNumbers } from './random-damage.ts'

const ROUNDS = Number(process.env.SETTEE_DAMAGE ?? 100)
const SEED = Number(process.env.SETTEE_DAMAGE_SEED ?? Date.now() % 1e6)
const position = { seq: 7, seen: 7, epoch: 'a', purgeSeq: 0 }

function docOf(n: number): IndexedDoc {
  const entry = (key: number) => ({
    key: Uint8Array.of(1, key >> 8, key & 255, 0),
    keyText: String(key),
    valueText: JSON.stringify({ n, words: 'some words '.repeat(n % 4) }),
  })
  return { id: `doc-${n}`, rows: [[entry(n), entry(n + 1000)], n % 3 === 0 ? [entry(7)] : []] }
}

const opened = (folder: string) =>
  new SqliteIndexStores({ folder, errors: new FileErrors(), caches: new PageCaches() })

/** Reading turns are short, so that one may not read everything. */
async function readAll(store: IndexStore): Promise<string> {
  const found: unknown[] = [await store.status()]
  for (const index of [0, 1]) {
    const rows: IndexRow[] = []
    for (let isMore = true; isMore; ) {
      const last = rows.at(-1)?.rowKey
      const from = last && Buffer.concat([last, Uint8Array.of(0)])
      const page = await store.read(index, { from }, 1000)
      rows.push(...page.rows)
      isMore = page.more
    }
    const values: string[] = []
    for (let from: Uint8Array | null | undefined; from !== null; ) {
      const page = await store.readValues(index, { from })
      values.push(...page.values)
      from = page.next
    }
    const rowKeys = rows.filter((_, n) => n % 16 === 0).map(({ rowKey }) => rowKey)
    const { total, before } = await store.counts(index, rowKeys)
    const { ranges } = await store.reducedRanges(index, {}, 100)
    found.push(rows, values, total, before, ranges, await store.rowKeyAt(index, 5))
  }
  return JSON.stringify(found)
}

/** What {@link readAll} has found, each as a text. A row that a damaged page has lost is missing in it. */
function summed(found: string): string[] {
  const [, ...parts] = JSON.parse(found) as unknown[]
  return [0, 6].flatMap((at) => {
    const [rows, values, total, before, reduced, rowKeyAt] = parts.slice(at) as [
      object[],
      string[],
      number,
      number[],
      { reduction: unknown }[],
      object,
    ]
    const reductions = reduced.map(({ reduction }) => reduction).filter((reduction) => reduction !== null)
    const counts = [{ total }, ...before.map((each, n) => ({ before: each, n })), rowKeyAt]
    return [rows, values, reductions, counts].flatMap((list) => list.map((each) => JSON.stringify(each)))
  })
}

/** The first difference, with some characters around it. */
function differences(found: string, truth: string): [string, string] {
  let at = 0
  while (found[at] === truth[at]) at += 1
  const around = (text: string) => text.slice(Math.max(0, at - 80), at + 40)
  return [around(found), around(truth)]
}

t.test('a changed bit', async (t) => {
  t.comment(`seed ${SEED}`)
  const folder = await temporaryFolder(t)
  const stores = opened(join(folder, 'first'))
  const store = stores.open('abc', 2)
  const build = await store.build()
  await build?.restart(position)
  await build?.add(
    Array.from({ length: 300 }, (_, n) => docOf(n)),
    7,
    7,
  )
  await build?.finish()
  const { version } = await store.status()
  const next = await store.update([docOf(2000), { id: 'doc-5', rows: [[], []] }], {
    from: version,
    position,
    more: false,
  })
  const { ranges } = await store.reducedRanges(0, {}, 100)
  const reductions = ranges.flatMap(({ bucket }) => (bucket === null ? [] : [{ bucket, reduction: '[12]' }]))
  t.ok(reductions.length > 1)
  await store.keepReductions(0, next as number, reductions)
  t.notOk(isIndexDamaged(join(folder, 'first'), 'abc'), 'an open one that is whole')
  await readAll(store)
  stores.close()
  const read = async (name: string) => {
    const some = opened(join(folder, name))
    try {
      return await readAll(some.open('abc', 2))
    } finally {
      some.close()
    }
  }
  const truth = await read('first')
  const written = new Set(summed(truth))
  const whole = readFileSync(join(folder, 'first', 'abc.sqlite'))
  const random = randomNumbers(SEED)
  const counts = { found: 0, unseen: 0, read: 0 }
  for (let round = 0; round < ROUNDS; round++) {
    const name = `round-${round}`
    mkdirSync(join(folder, name))
    const bytes = Buffer.from(whole)
    const at = random(bytes.length)
    bytes.writeUInt8((bytes[at] as number) ^ (1 << random(8)), at)
    writeFileSync(join(folder, name, 'abc.sqlite'), bytes)
    const isFound = isIndexDamaged(join(folder, name), 'abc')
    counts[isFound ? 'found' : 'unseen'] += 1
    const found = await read(name).catch((error: Error) => error.message)
    // A damaged file is emptied, and has no position then.
    const isRead = found.startsWith('[') && !found.includes('"position":null')
    if (isRead) counts.read += 1
    const wrong = isRead ? summed(found).filter((each) => !written.has(each)) : []
    t.same(wrong, [], `round ${round}, byte ${at}`)
    if (isFound) continue
    // One that SQLite itself refuses is emptied.
    if (found !== truth && !found.includes('"position":null'))
      t.equal(...differences(found, truth), `round ${round}, byte ${at}`)
  }
  t.comment(JSON.stringify(counts))
  t.ok(counts.found > 0, `${ROUNDS} rounds`)
})

t.test('a changed bit in the texts of the tables', async (t) => {
  const folder = await temporaryFolder(t)
  const stores = opened(folder)
  await stores.open('abc', 2).status()
  stores.close()
  const path = join(folder, 'abc.sqlite')
  const whole = readFileSync(path)
  const random = randomNumbers(SEED)
  const texts = [...whole.toString('latin1').matchAll(/CREATE TABLE \w+ \([^)]+\) WITHOUT ROWID/g)]
  t.equal(texts.length, 8)
  t.notOk(isIndexDamaged(folder, 'abc'))
  const unseen: string[] = []
  for (const { index, 0: text } of texts)
    for (let at = index; at < index + text.length; at++) {
      const bytes = Buffer.from(whole)
      bytes.writeUInt8((bytes[at] as number) ^ (1 << random(8)), at)
      writeFileSync(path, bytes)
      if (!isIndexDamaged(folder, 'abc')) unseen.push(bytes.toString('latin1', index, index + text.length))
    }
  t.same(unseen, [], 'all are found')
})

/** One bit of a row's head says whether its row key is bytes or a text; both have the same bytes. */
t.test('a place that has become a text', async (t) => {
  const folder = await temporaryFolder(t)
  const stores = opened(folder)
  const store = stores.open('abc', 2)
  const { version } = await store.status()
  const docs = Array.from({ length: 20 }, (_, n) => docOf(n))
  await store.update(docs, { from: version, position, more: false })
  // The search for the first row of 40 does not compare the eighth, which would lead it astray.
  const { rowKey } = (await store.read(0, {}, 8)).rows.at(-1) as IndexRow
  stores.close()
  const path = join(folder, 'abc.sqlite')
  const bytes = readFileSync(path)
  // Before the columns come the length of the head and the type of each (https://sqlite.org/fileformat2.html#record_format).
  const headLength = 6
  let changed = 0
  // Pages may have old copies of the row.
  for (let at = bytes.indexOf(rowKey); at !== -1; at = bytes.indexOf(rowKey, at + 1)) {
    const head = at - headLength
    if (bytes[head] !== headLength || bytes[head + 1] !== 12 + 2 * rowKey.length) continue
    bytes.writeUInt8(13 + 2 * rowKey.length, head + 1)
    changed += 1
  }
  t.ok(changed > 0)
  const reads = [(some: IndexStore) => some.read(0, {}, 1000), (some: IndexStore) => some.readValues(0, {})]
  for (const read of reads) {
    writeFileSync(path, bytes)
    const again = opened(folder)
    await t.rejects(async () => read(again.open('abc', 2)), { code: 'unavailable' })
    again.close()
  }
})

/** Counts before some rows, and skips: each alone, so that one that is refused hides no other. */
async function countsOf(folder: string, rowKeys: readonly Uint8Array[]): Promise<string[]> {
  const read = async (ask: (store: IndexStore) => Promise<unknown>) => {
    const stores = opened(folder)
    try {
      return JSON.stringify(await ask(stores.open('abc', 2)))
    } catch {
      return 'refused'
    } finally {
      stores.close()
    }
  }
  const asked = [
    read(async (store) => (await store.counts(0, [])).total),
    ...rowKeys.map((rowKey) => read(async (store) => (await store.counts(0, [rowKey])).before)),
    ...[0, 300, 600, 900].map((count) => read(async (store) => (await store.rowKeyAt(0, count)).rowKey)),
  ]
  return Promise.all(asked)
}

t.test('a changed count', async (t) => {
  const folder = await temporaryFolder(t)
  const stores = opened(folder)
  const store = stores.open('abc', 2)
  const { version } = await store.status()
  const docs = Array.from({ length: 1000 }, (_, n) => docOf(n))
  await store.update(docs, { from: version, position, more: false })
  const { rows } = await store.read(0, {}, 1000)
  const rowKeys = rows.filter((_, n) => n % 90 === 0).map(({ rowKey }) => rowKey)
  stores.close()
  const truth = await countsOf(folder, rowKeys)
  const path = join(folder, 'abc.sqlite')
  const whole = readFileSync(path)
  const random = randomNumbers(SEED)
  let refused = 0
  for (let round = 0; round < ROUNDS; round++) {
    writeFileSync(path, whole)
    const file = new Sqlite(path)
    const table = ['sums_0', 'blocks_0'][random(2)]
    const found = file.prepare(`SELECT k, nc FROM ${table}`).all() as { k: Buffer; nc: number }[]
    const { k, nc } = found[random(found.length)] as { k: Buffer; nc: number }
    const count = Number(BigInt(nc) ^ (1n << BigInt(random(36))))
    file.prepare(`UPDATE ${table} SET nc = ? WHERE k = ?`).run(count, k)
    file.close()
    const answers = await countsOf(folder, rowKeys)
    // One that was refused is empty at the next opening.
    const isKnown = (answer: string, n: number) => [truth[n], 'refused', '0', '[0]', 'null'].includes(answer)
    t.same(
      answers.filter((answer, n) => !isKnown(answer, n)),
      [],
      `round ${round}`,
    )
    refused += Number(answers.includes('refused'))
  }
  t.ok(refused > 0, `${refused} were refused`)
})

t.test('a file of an older settee', async (t) => {
  const folder = await temporaryFolder(t)
  const stores = opened(folder)
  const store = stores.open('abc', 2)
  const { version } = await store.status()
  await store.update([docOf(1), docOf(2)], { from: version, position, more: false })
  const truth = await readAll(store)
  stores.close()
  const change = (sql: string) => {
    const file = new Sqlite(join(folder, 'abc.sqlite'))
    file.exec(sql)
    file.close()
  }
  for (const table of ['docs', 'rows_0', 'rows_1', 'sums_0', 'sums_1'])
    change(`ALTER TABLE ${table} DROP COLUMN c`)
  for (const table of ['sums_0', 'sums_1', 'blocks_0', 'blocks_1'])
    change(`
      UPDATE ${table} SET nc = nc / ${COUNT_FACTOR};
      ALTER TABLE ${table} RENAME COLUMN nc TO n`)
  t.notOk(isIndexDamaged(folder, 'abc'))
  const again = opened(folder)
  t.teardown(() => again.close())
  const old = again.open('abc', 2)
  t.match(JSON.parse(await readAll(old))[1], JSON.parse(truth)[1], 'it is used, and not built again')
  const status = await old.status()
  await old.update([docOf(3)], { from: status.version, position, more: false })
  t.notOk(isIndexDamaged(folder, 'abc'))
  change("UPDATE rows_0 SET value = '1' WHERE key = '3'")
  t.ok(isIndexDamaged(folder, 'abc'), 'a row from since then')
  change(`DELETE FROM rows_0; UPDATE sums_0 SET nc = 5 * ${COUNT_FACTOR}`)
  t.ok(isIndexDamaged(folder, 'abc'), 'counts')
})
