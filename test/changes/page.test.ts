import t from 'tap'
import { changesPage } from '../../src/changes/filtered-page.ts'
import type { ChangesPage, Since } from '../../src/changes/page.ts'
import { type ChangesOptions, PAGE_ROWS } from '../../src/changes/rows.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { attachment, put, write } from '../storage/conformance/edits.ts'
import { rejectsWith } from '../storage/conformance/setup.ts'
import { ADMIN, ANNA, FILTER_CONTEXT, numberOf, OPTIONS, openStore, openVectors, rowsOf } from './helpers.ts'

// A stopped clock: on a busy machine a page would end early.
performance.now = () => 0

interface PageOptions extends Partial<ChangesOptions> {
  readonly since?: Since
  readonly limit?: number
}

function pageOf(store: DatabaseStore, options: PageOptions = {}, user = ADMIN): Promise<ChangesPage> {
  const { since = '0', limit = Infinity, ...others } = options
  return changesPage(store, user, { since, limit, options: { ...OPTIONS, ...others } }, FILTER_CONTEXT)
}

const textOf = ({ bytes }: ChangesPage) => Buffer.from(bytes).toString()

t.test('a page answers as in protocol.md 19.5', async (t) => {
  const store = await openVectors()
  const vectors: [
    name: string,
    options: PageOptions,
    seqs: (number | null)[],
    last: number,
    pending: number,
  ][] = [
    ['no parameter', {}, [6, 7, 8], 8, 0],
    ['limit=1', { limit: 1 }, [6], 6, 2],
    ['limit=3', { limit: 3 }, [6, 7, 8], 8, 0],
    ['limit=0', { limit: 0 }, [], 0, 3],
    ['limit=0 above a row', { limit: 0, since: '6' }, [], 6, 2],
    ['since=now', { since: 'now' }, [], 8, 0],
    ['since=now&limit=0', { since: 'now', limit: 0 }, [], 8, 0],
    ['since=7', { since: '7' }, [8], 8, 0],
    ['a since in the future', { since: '99' }, [6, 7, 8], 8, 0],
    ['descending', { descending: true }, [8, 7, 6], 6, 0],
    ['descending ignores since', { descending: true, since: '7' }, [8, 7, 6], 6, 0],
    ['descending&limit=1', { descending: true, limit: 1 }, [8], 8, 2],
    ['descending, continued', { descending: true, since: 8, limit: 1 }, [7], 7, 1],
    ['descending, at its end', { descending: true, since: 6 }, [], 6, 0],
    ['descending&limit=0', { descending: true, limit: 0 }, [], 8, 3],
    ['seq_interval=3', { seqInterval: 3 }, [null, 7, null], 8, 0],
    ['seq_interval=2', { seqInterval: 2 }, [6, null, 8], 8, 0],
    ['seq_interval=2&limit=3', { seqInterval: 2, limit: 3 }, [null, 7, null], 8, 0],
  ]
  for (const [name, options, seqs, last, pending] of vectors) {
    const page = await pageOf(store, options)
    t.same(
      rowsOf(page).map(({ seq }) => numberOf(seq)),
      seqs,
      `${name}: rows`,
    )
    t.equal(page.rows, seqs.length, `${name}: their count`)
    t.equal(page.lastSeq, last, `${name}: last_seq`)
    t.equal(numberOf(page.lastToken), last, `${name}: its token`)
    t.equal(page.pending, pending, `${name}: pending`)
    t.equal(page.atTip, pending === 0, `${name}: at the tip`)
  }
})

t.test('an empty database gives an empty page', async (t) => {
  const store = await openStore()
  for (const options of [{}, { descending: true }, { limit: 0 }, { docIds: ['a'] }, { docIds: [] }]) {
    t.match(
      await pageOf(store, options),
      { rows: 0, lastSeq: 0, pending: 0, atTip: true },
      JSON.stringify(options),
    )
  }
})

t.test('a row has the members of protocol.md 5.2', async (t) => {
  const store = await openVectors()
  const [a, b] = rowsOf(await pageOf(store))
  t.same(Object.keys(a ?? {}), ['seq', 'id', 'changes'])
  t.same(Object.keys(b ?? {}), ['seq', 'id', 'changes', 'deleted'])
  t.match(b, { id: 'b', deleted: true, changes: [{ rev: /^2-[0-9a-f]{32}$/ }] })
})

t.test('include_docs sends the winner, even a tombstone', async (t) => {
  const store = await openVectors()
  const rows = rowsOf(await pageOf(store, { includeDocs: true }))
  t.match(rows[1]?.doc, { _id: 'b', _rev: rows[1]?.changes[0]?.rev, _deleted: true })
  t.match(rows[2]?.doc, { _id: 'c', n: 5 })
})

t.test('attachments are sent as stubs or inline', async (t) => {
  const store = await openStore()
  await store.updateDocs([put('a', '{}', { attachments: [attachment('x.txt', Buffer.from('hello'))] })])
  const stub = rowsOf(await pageOf(store, { includeDocs: true }))[0]?.doc
  t.match(stub?._attachments, { 'x.txt': { stub: true, length: 5 } })
  const inline = rowsOf(await pageOf(store, { includeDocs: true, attachments: true }))[0]?.doc
  t.match(inline?._attachments, { 'x.txt': { data: Buffer.from('hello').toString('base64') } })
})

t.test(
  'a page with large attachments ends early, and a content that has gone is an error of its row',
  async (t) => {
    const store = await openStore()
    const ids = ['a', 'b', 'c', 'd']
    await store.updateDocs(
      ids.map((id) => put(id, '{}', { attachments: [attachment('x', Buffer.alloc(300_000, id))] })),
    )
    const options = { includeDocs: true, attachments: true }
    const first = await pageOf(store, options)
    t.same(
      rowsOf(first).map(({ id }) => id),
      ['a', 'b'],
      'with the row that reaches 512 kB of base64',
    )
    t.equal(first.pending, 2)
    t.notOk(first.atTip)
    const last = await pageOf(store, { ...options, since: first.lastSeq })
    t.same(
      rowsOf(last).map(({ id }) => id),
      ['c', 'd'],
    )
    t.ok(last.atTip)
    const back = await pageOf(store, { ...options, descending: true })
    t.same(
      rowsOf(back).map(({ id }) => id),
      ['d', 'c'],
    )

    const original = store.readChanges.bind(store)
    store.readChanges = async (range, paging, read) => {
      const page = await original(range, paging, read)
      await store.updateDocs([put('a', '{"n":2}')])
      await store.compact()
      return page
    }
    const [gone, kept] = rowsOf(await pageOf(store, { ...options, limit: 2 }))
    t.match(gone, { id: 'a', error: 'not_found' })
    t.notOk(gone?.doc)
    t.ok(kept?.doc)
  },
)

t.test('leaves are in the order of protocol.md 19.1', async (t) => {
  const leaf = (rev: string, deleted = false) => ({
    rev,
    deleted,
    ancestry: [rev.slice(2), 'a'],
    content: { body: '{}', attachments: [] },
  })
  const store = await openStore()
  const revisions = [leaf('2-b'), leaf('2-d', true), leaf('2-c')]
  await store.updateDocs([write('x', { rev: '2-c', deleted: false, sequenced: true, revisions })])
  const rows = async (options: PageOptions) => rowsOf(await pageOf(store, options))
  t.same((await rows({ style: 'all_docs' }))[0]?.changes, [{ rev: '2-c' }, { rev: '2-b' }, { rev: '2-d' }])
  t.same((await rows({}))[0]?.changes, [{ rev: '2-c' }])
  t.same((await rows({ includeDocs: true, conflicts: true }))[0]?.doc?._conflicts, ['2-b'])
  t.equal((await rows({ includeDocs: true }))[0]?.doc?._conflicts, undefined)
})

t.test('each framing has its own bytes', async (t) => {
  const store = await openVectors()
  const lines = textOf(await pageOf(store, { framing: 'lines' })).split('\n')
  t.equal(lines.length, 4)
  t.equal(lines[3], '')
  t.equal(textOf(await pageOf(store)), lines.slice(0, 3).join(',\r\n'))
  const [first] = textOf(await pageOf(store, { framing: 'events' })).split('\n\n')
  const { seq } = JSON.parse(lines[0] ?? '') as { seq: string }
  t.equal(first, `data: ${lines[0]}\nid: ${JSON.stringify(seq)}`)
  const sparse = textOf(await pageOf(store, { framing: 'events', seqInterval: 3 }))
  t.equal(sparse.match(/^id: /gm)?.length, 1, 'an event without a seq has no id')
})

t.test('_doc_ids restricts the feed to listed documents', async (t) => {
  const store = await openVectors()
  const vectors: [options: PageOptions, seqs: (number | null)[], last: number, pending: number][] = [
    [{ docIds: ['c', 'a', 'nowhere', 'a'] }, [6, 8], 8, 0],
    [{ docIds: ['b'] }, [7], 8, 0],
    [{ docIds: [] }, [], 8, 0],
    [{ docIds: ['a', 'c'], since: '6' }, [8], 8, 0],
    [{ docIds: ['a', 'c'], limit: 1 }, [6], 6, 2],
    [{ docIds: ['a', 'c'], descending: true }, [8, 6], 6, 0],
    [{ docIds: ['a', 'c'], descending: true, limit: 1 }, [8], 8, 2],
    [{ docIds: ['a', 'c'], limit: 0 }, [], 0, 3],
    [{ docIds: ['a', 'b', 'c'], seqInterval: 3 }, [null, 7, null], 8, 0],
    [{ docIds: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'] }, [6, 7, 8], 8, 0],
  ]
  for (const [options, seqs, last, pending] of vectors) {
    const page = await pageOf(store, options)
    const found = rowsOf(page).map(({ seq }) => numberOf(seq))
    t.same(
      { seqs: found, last: page.lastSeq, pending: page.pending },
      { seqs, last, pending },
      JSON.stringify(options),
    )
  }
})

t.test('a listed document that is written during the search is sent once, with the next page', async (t) => {
  const store = await openVectors()
  const original = store.readDocs.bind(store)
  let moved = false
  store.readDocs = async (ids, read, readSet, chars) => {
    const found = await original(ids, read, readSet, chars)
    if (!moved) await store.updateDocs([put('a')])
    moved = true
    return found
  }
  const page = await pageOf(store, { docIds: ['a', 'c'] })
  t.same(
    rowsOf(page).map(({ id }) => id),
    ['c'],
  )
  t.equal(page.lastSeq, 8)
  const next = await pageOf(store, { docIds: ['a', 'c'], since: page.lastSeq })
  t.same(
    rowsOf(next).map(({ id }) => id),
    ['a'],
  )
})

t.test('a page is limited in rows and in text', async (t) => {
  const store = await openStore()
  await store.updateDocs(Array.from({ length: PAGE_ROWS + 1 }, (_, i) => put(`d${i}`)))
  const rows = await pageOf(store)
  t.ok(rows.rows <= PAGE_ROWS && rows.rows > 0)
  t.equal(rows.pending, PAGE_ROWS + 1 - rows.rows)
  t.equal(rows.atTip, false)
  const large = JSON.stringify({ text: 'x'.repeat(400_000) })
  await store.updateDocs(['x', 'y', 'z', 'u', 'v'].map((id) => put(id, large)))
  for (const options of [{ since: PAGE_ROWS + 1 }, { docIds: ['x', 'y', 'z', 'u', 'v'] }]) {
    const texts = await pageOf(store, { includeDocs: true, ...options })
    t.ok(texts.rows >= 1 && texts.rows <= 5)
    t.ok(texts.bytes.length < 2_100_000)
  }
})

t.test('rights are checked before anything else', async (t) => {
  const store = await openVectors()
  for (const options of [{}, { since: 'rubbish' }, { since: 3 }, { docIds: ['a'] }, { limit: 0, since: 3 }]) {
    await rejectsWith(t, pageOf(store, options, ANNA), 'forbidden')
    await rejectsWith(t, pageOf(store, options, { name: null, roles: [] }), 'unauthorized')
  }
  const security = { members: { names: ['anna'] } }
  await store.updateSettings(() => ({ result: null, write: { security } }))
  const page = await pageOf(store, {}, ANNA)
  t.equal(page.rows, 3)
  t.same(page.security, security)
})

t.test('a token continues the feed, and an unknown one starts from 0', async (t) => {
  const store = await openVectors()
  await rejectsWith(t, pageOf(store, { since: 'rubbish' }), 'bad_request')
  const { lastToken } = await pageOf(store, { limit: 1 })
  t.equal((await pageOf(store, { since: lastToken })).rows, 2)
  t.equal((await pageOf(store, { since: `"${lastToken}"` })).rows, 2)
  const foreign = await pageOf(store, { since: '7-anotherstore' })
  t.match(foreign, { rows: 3, unknownEpoch: true })
  t.equal((await pageOf(store, { since: lastToken })).unknownEpoch, false)
})

t.test('the state changes with the content of the feed', async (t) => {
  const store = await openVectors()
  const before = await pageOf(store, { limit: 1 })
  t.equal((await pageOf(store)).state, before.state)
  await store.updateDocs([put('a')])
  t.not((await pageOf(store)).state, before.state)
})
