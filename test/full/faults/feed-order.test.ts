/**
 * Feeds never skip or reorder a committed change. Readers of every kind, slow ones and ones that reconnect with their
 * last number, read while writers write, and while the server is killed repeatedly.
 *
 * - Within a connection, numbers strictly increase, and no document returns to an older revision.
 * - A revision has the same token for every reader, however often it is read.
 * - A write that was acknowledged before a request is in its answer, if that is read to the end, or in an earlier one.
 * - At the end, each reader has the winner of every document. So it saw every change before its last number, or a later
 *   row of the same document.
 *
 *     SETTEE_FEED_KILLS=200 npx tap --timeout=0 test/full/faults/feed-order.test.ts     the long form
 */
import { randomInt } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { builtServer } from '../../faults/built-server.ts'
import { Reader } from '../../faults/feeds/readers.ts'
import { Client, Unanswered } from '../../faults/kill/client.ts'
import { generation } from '../../faults/kill/ledger.ts'
import { until } from '../../helpers/until.ts'

const KILLS = Number(process.env.SETTEE_FEED_KILLS ?? 3)
const WRITERS = 8
const DOCUMENTS = 12
/** Acknowledged writes between two kills. */
const BETWEEN = 400

t.setTimeout(180_000 + KILLS * 30_000)

t.test(`readers of every kind through ${KILLS} kills`, async (t) => {
  const server = await builtServer(t)
  await server.start()
  const client = new Client(server.url)
  t.teardown(() => client.close())
  await client.succeed('PUT', '/notes')
  const acknowledged = new Map<string, number>()
  const url = `${server.url}/notes`
  const readers = [
    new Reader(url, acknowledged, 'normal'),
    new Reader(url, acknowledged, 'longpoll'),
    new Reader(url, acknowledged, 'longpoll', { pauseMs: 2 }),
    new Reader(url, acknowledged, 'continuous'),
    new Reader(url, acknowledged, 'continuous', { pauseMs: 3 }),
    new Reader(url, acknowledged, 'continuous', { patience: 15 }),
    new Reader(url, acknowledged, 'eventsource'),
    new Reader(url, acknowledged, 'eventsource', { patience: 40, pauseMs: 1 }),
  ]
  t.teardown(() => {
    for (const reader of readers) reader.stop()
  })
  const reading = readers.map((reader) => reader.run())
  let isOver = false
  const writing = Array.from({ length: WRITERS }, (_, at) =>
    write(client, `w${at}`, acknowledged, () => isOver),
  )
  for (let kill = 1; kill <= KILLS; kill++) {
    const enough = client.acknowledged + BETWEEN
    await until('enough is written', () => client.acknowledged >= enough)
    server.strike()
    await server.gone()
    await server.start()
  }
  const enough = client.acknowledged + BETWEEN
  await until('enough is written', () => client.acknowledged >= enough)
  isOver = true
  await Promise.all(writing)

  const { json } = await client.get('/notes/_changes')
  const winners = new Map<string, string>(
    json.results.map((row: { id: string; changes: { rev: string }[] }) => [row.id, row.changes[0]?.rev]),
  )
  const hasAll = (reader: Reader) => [...winners].every(([id, rev]) => reader.rows.get(id)?.rev === rev)
  await until('all have read all', () => readers.every(hasAll)).catch(() => undefined)
  for (const reader of readers) reader.stop()
  await Promise.all(reading)

  const tokens = new Map<string, string>()
  for (const { name, rows, seen, faults, connections } of readers) {
    const missing = [...winners].filter(([id, rev]) => rows.get(id)?.rev !== rev)
    t.strictSame(missing, [], `${name}: has the winner of each of ${winners.size} documents`)
    t.equal(rows.size, winners.size, `${name}: and of no others`)
    t.strictSame(faults.slice(0, 5), [], `${name}: ${seen.size} revisions over ${connections} connections`)
    const others = [...seen].filter(([key, token]) => (tokens.get(key) ?? token) !== token)
    t.strictSame(others.slice(0, 5), [], `${name}: with the tokens that others saw`)
    for (const [key, token] of seen) tokens.set(key, token)
  }
  t.comment(`${client.acknowledged} writes acknowledged, ${client.unanswered} without an answer`)
})

/** Writes its own documents, one request at a time, on top of the revisions that it last saw. */
async function write(
  client: Client,
  name: string,
  acknowledged: Map<string, number>,
  isOver: () => boolean,
): Promise<void> {
  const revs = new Map<string, string>()
  while (!isOver()) {
    const id = `${name}-${randomInt(DOCUMENTS)}`
    try {
      const rev = revs.get(id)
      const { status, json } = await client.write('PUT', `/notes/${id}`, {
        body: { at: performance.now(), ...(rev !== undefined && { _rev: rev }) },
      })
      if (status !== 201 && status !== 409) throw new Error(`${id}: ${status}`)
      // A conflict means that an earlier write without an answer was stored.
      const now = status === 201 ? json.rev : (await client.get(`/notes/${id}`)).json._rev
      revs.set(id, now)
      acknowledged.set(id, generation(now))
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error
      await delay(20)
    }
  }
}
