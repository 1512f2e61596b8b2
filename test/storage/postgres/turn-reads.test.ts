import t from 'tap'
import type { Connections, Query } from '../../../src/storage/postgres/connections.ts'
import { DocumentLoader } from '../../../src/storage/postgres/document-loader.ts'
import { DocumentPages } from '../../../src/storage/postgres/document-pages.ts'
import { RangeTotals } from '../../../src/storage/postgres/range-totals.ts'
import type { DocReadSet } from '../../../src/storage/read-set.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { openFilled } from './filled-database.ts'

const WINNER: DocReadSet = { body: true, branches: true }
const LONG = JSON.stringify({ text: 'x'.repeat(100_000) })

t.test('documents that are read in one turn', async (t) => {
  const { database, put } = await openFilled(t, await startPostgres(t))
  for (let n = 0; n < 20; n++)
    await put(`doc${n}`, { rev: `1-${n}`, body: `{"n":${n}}` }, { rev: '1-0a', ancestry: ['0a'] })
  await put('long', { rev: '1-l', body: LONG })
  const names: string[] = []
  const read = (query: Query) => {
    names.push(query.name)
    return database.connections.read(query)
  }
  const loader = new DocumentLoader({ ...database, connections: { read } as Connections })
  const pages = new DocumentPages(loader, new RangeTotals(database))
  const get = async (id: string, readSet: DocReadSet = WINNER) => {
    const [found] = await pages.readDocs(
      [id],
      (doc, asked, { updateSeq }) => [asked, doc && [doc.body(doc.rev), doc.branches.length], updateSeq],
      readSet,
    )
    return found
  }
  const nameOfOne = 'docs_one_bl'

  t.test('share a statement, in which each finds its own', async (t) => {
    t.same(await get('doc3'), ['doc3', ['{"n":3}', 2], 21])
    t.same(names.splice(0), [nameOfOne])
    const ids = ['doc1', 'none', 'doc2']
    t.same(await Promise.all(ids.map((id) => get(id))), [
      ['doc1', ['{"n":1}', 2], 21],
      ['none', null, 21],
      ['doc2', ['{"n":2}', 2], 21],
    ])
    t.same(names.splice(0), ['docs_short_bl'])
  })

  t.test('are read by 16 at most, and the same one by each of its readers', async (t) => {
    const found = await Promise.all(Array.from({ length: 20 }, (_, n) => get(`doc${n}`)))
    t.same(found[19], ['doc19', ['{"n":19}', 2], 21])
    t.same(names.splice(0), ['docs_short_bl', 'docs_short_bl'])
    const same = await Promise.all([get('doc1'), get('doc1')])
    t.same(same[1], same[0])
    t.same(names.splice(0), [nameOfOne, nameOfOne])
  })

  t.test('do not wait for a long body', async (t) => {
    const [long, short] = await Promise.all([get('long'), get('doc1')])
    t.same(long, ['long', [LONG, 1], 21])
    t.same(short, ['doc1', ['{"n":1}', 2], 21])
    t.same(names.splice(0), ['docs_short_bl', 'docs_one_b'])
  })

  t.test('fail alone where their callers throw', async (t) => {
    const failing = pages.readDocs(
      ['doc1'],
      () => {
        throw new Error('mine')
      },
      WINNER,
    )
    const [other] = await Promise.all([get('doc2'), t.rejects(failing, { message: 'mine' })])
    t.same(other, ['doc2', ['{"n":2}', 2], 21])
    t.same(names.splice(0).length, 1)
  })
})
