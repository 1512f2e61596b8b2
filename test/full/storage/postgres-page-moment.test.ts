/**
 * The view and the rows of a page belong to one moment. A feed goes on from the view's number where no rows remain, so what
 * is committed between the rows and a later view would never be seen. Two readers that read so must be found out.
 */
import t from 'tap'
import type { Run } from '../../../src/storage/postgres/connections.ts'
import { DocumentLoader } from '../../../src/storage/postgres/document-loader.ts'
import { DocumentPages } from '../../../src/storage/postgres/document-pages.ts'
import { RangeTotals } from '../../../src/storage/postgres/range-totals.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { DB, type Filled, openFilled } from '../../storage/postgres/filled-database.ts'

/** What a follower of a feed reads at once. */
interface FeedPage {
  readonly rows: readonly { readonly id: string; readonly seq: number }[]
  readonly more: boolean
  readonly updateSeq: number
}

type ReadPage = (since: number) => Promise<FeedPage>

const LIMIT = 50
/** Pages after which no rows remained. */
const TIPS = 150
const WRITERS = 3

/** Follows the feed while documents are written. @returns how many of them it has not seen */
async function lostDocuments({ put }: Filled, name: string, readPage: ReadPage): Promise<number> {
  const written = new Set<string>()
  let isEnding = false
  const write = async (writer: number) => {
    for (let n = 0; !isEnding; n++) {
      const id = `${name} ${writer} ${n}`
      await put(id, { rev: '1-a' })
      written.add(id)
    }
  }
  const writers = Array.from({ length: WRITERS }, (_, writer) => write(writer))
  const seen = new Set<string>()
  let since = 0
  const follow = async () => {
    const { rows, more, updateSeq } = await readPage(since)
    for (const { id } of rows) seen.add(id)
    since = more ? (rows.at(-1)?.seq ?? since) : updateSeq
    return more
  }
  for (let tips = 0; tips < TIPS; ) if (!(await follow())) tips += 1
  isEnding = true
  await Promise.all(writers)
  while (await follow());
  return [...written].filter((id) => !seen.has(id)).length
}

t.test('a feed that is followed while others write', async (t) => {
  const filled = await openFilled(t, await startPostgres(t))
  const { database } = filled
  const { connections } = database
  const pages = new DocumentPages(new DocumentLoader(database), new RangeTotals(database))
  const row = ({ id, seq }: { readonly id: string; readonly seq: number }) => ({ id, seq })

  t.test('shows every document', async (t) => {
    const lost = await lostDocuments(filled, 'engine', async (since) => {
      const { rows, more, view } = await pages.readChanges({ since }, { limit: LIMIT }, row)
      return { rows, more, updateSeq: view.updateSeq }
    })
    t.equal(lost, 0)
  })

  t.test('loses some if the view is read after the page', async (t) => {
    const lost = await lostDocuments(filled, 'view after page', async (since) => {
      const { rows, more } = await pages.readChanges({ since }, { limit: LIMIT }, row)
      const [updateSeq] = await readUpdateSeq((query) => connections.read(query))
      return { rows, more, updateSeq }
    })
    t.ok(lost > 0)
  })

  t.test('loses some if both are read in one transaction at READ COMMITTED', async (t) => {
    const lost = await lostDocuments(filled, 'read committed', (since) =>
      connections.transaction(async (run) => {
        const found = await run<readonly [string, number]>({
          name: 'test_page',
          text: 'SELECT id, seq FROM doc WHERE db = $1 AND seq > $2 ORDER BY seq LIMIT $3',
          values: [DB, since, LIMIT + 1],
        })
        const rows = found.slice(0, LIMIT).map(([id, seq]) => ({ id, seq }))
        const [updateSeq] = await readUpdateSeq(run)
        return { rows, more: found.length > LIMIT, updateSeq }
      }),
    )
    t.ok(lost > 0)
  })
})

async function readUpdateSeq(run: Run): Promise<readonly [number]> {
  const text = 'SELECT update_seq FROM database WHERE db = $1'
  const [row] = await run<readonly [number]>({ name: 'test_view', text, values: [DB] })
  return row as readonly [number]
}
