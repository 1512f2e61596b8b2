/**
 * Thirty writers write everything that can be written through four nodes, while nodes and PostgreSQL are killed, again and
 * again, and nodes are frozen and cut off at the same time. After each round, everything that was acknowledged is there
 * exactly, or as the one write has made it that its writer had sent after that and that has no answer
 * (test/faults/kill/ledger.ts, audit.ts). Nothing is done to help: nodes that were not killed are not started again.
 *
 * Meanwhile some follow the feeds of the databases, at another node with each request. Their sequences ascend, and in the
 * end each knows of every document what the database has (test/faults/feeds/readers.ts).
 *
 *     SETTEE_NODE_KILLS=200 npx tap --timeout=0 test/full/nodes/kills.test.ts     the long form
 */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type Kind, Reader } from '../../faults/feeds/readers.ts'
import { Audit, numberOf } from '../../faults/kill/audit.ts'
import { Client, Unanswered } from '../../faults/kill/client.ts'
import { type Cell, generation, Ledger } from '../../faults/kill/ledger.ts'
import * as writers from '../../faults/kill/writers.ts'
import { Cluster, type Fault } from '../../faults/nodes/cluster.ts'

const KILLS = Number(process.env.SETTEE_NODE_KILLS ?? 20)
/** Writers write undisturbed before the first fault of a round, and after the last, in ms. */
const QUIET_MS = 400
/** The faults of a round begin within this time, in ms. */
const WITHIN_MS = 1200
/** How long another node may not know of a changed setting, with some time to spare, in ms. */
const SETTINGS_MS = 1500
/** A reader has read everything after this time, in ms. */
const READ_MS = 20_000
/** Rounds between looks at everything that was ever written. */
const FULL_EVERY = 4
const DATABASES = [writers.NOTES, writers.FILES, writers.PILE]
/** What happens in each round besides a kill of a node and one of PostgreSQL. */
const BESIDE: readonly Fault[] = ['cut off', 'frozen', 'answers lost', 'connections reset']

t.setTimeout(240_000 + KILLS * 20_000)

t.test(`${KILLS} kills`, async (t) => {
  const cluster = await Cluster.start(t)
  const client = new Client(cluster.url, { isOfNodes: true })
  t.teardown(() => client.close())
  for (const name of DATABASES) await client.succeed('PUT', `/${name}`)
  const ledger = new Ledger()
  const audit = new Audit(client, ledger)
  const all = everyWriter(ledger)
  const readers = everyReader(cluster, ledger)
  const reading = Promise.all(readers.map(({ reader }) => reader.run()))
  t.teardown(() => {
    for (const { reader } of readers) reader.stop()
    return reading
  })
  const kills = () => cluster.count['node killed'] + cluster.count['PostgreSQL killed']
  const faults: string[] = []
  const inFlight: number[] = []
  for (let round = 0; kills() < KILLS && faults.length === 0; round++) {
    let isOver = false
    const write = async (writer: writers.Writer) => {
      try {
        while (!isOver) await writer.step(client)
      } catch (error) {
        // The look afterwards finds what became of its last write; until then it must not write over it.
        if (!(error instanceof Unanswered))
          faults.push(`${(error as Error).message}: ${(error as Error).cause}`)
      }
    }
    const writing = all.map(write)
    await sleep(QUIET_MS)
    const suffered: Fault[] = ['node killed', 'PostgreSQL killed', BESIDE[round % BESIDE.length] as Fault]
    await Promise.all(
      suffered.map(async (fault) => {
        await sleep(randomInt(WITHIN_MS))
        inFlight.push(client.inFlight)
        await cluster.suffer(fault)
      }),
    )
    await sleep(QUIET_MS)
    isOver = true
    await Promise.all(writing)
    await cluster.untilWell(writers.NOTES)
    await sleep(SETTINGS_MS)
    faults.push(...(await audit.run(DATABASES, round % FULL_EVERY === FULL_EVERY - 1, [])))
    for (const { reader } of readers) faults.push(...reader.faults)
  }
  faults.push(...(await audit.run(DATABASES, true, [])))
  for (const { reader, database } of readers) {
    faults.push(...(await feedFaults(reader, audit.feedOf(database), ledger.docs.get(database))))
    t.comment(
      `${database}, ${reader.name}: ${reader.seen.size} revisions over ${reader.connections} requests`,
    )
  }
  t.comment(
    `${client.acknowledged} writes acknowledged, ${client.unanswered} unanswered, of which ${audit.survived} had happened; ` +
      `${audit.checked} looked at; ${Math.max(...inFlight)} in flight at most; ${JSON.stringify(cluster.count)}`,
  )
  t.strictSame(faults.slice(0, 10), [], `${faults.length} faults`)
  t.ok(kills() >= KILLS)
})

function everyWriter(ledger: Ledger): readonly writers.Writer[] {
  const { NOTES, FILES, PILE } = writers
  const some = (count: number, make: (name: string) => writers.Writer) =>
    Array.from({ length: count }, (_, at) => make(String.fromCharCode(97 + at)))
  return [
    ...some(8, (name) => writers.singles(ledger, NOTES, `single-${name}`)),
    ...some(3, (name) => writers.bulks(ledger, NOTES, `bulk-${name}`)),
    ...some(3, (name) => writers.inlines(ledger, FILES, `inline-${name}`)),
    ...some(3, (name) => writers.uploads(ledger, FILES, `upload-${name}`)),
    ...some(4, (name) => writers.pushes(ledger, PILE, `push-${name}`)),
    ...some(2, (name) => writers.purges(ledger, PILE, `purge-${name}`)),
    ...some(3, (name) => writers.locals(ledger, NOTES, name)),
    writers.securities(ledger, FILES),
    ...some(2, (name) => writers.configs(ledger, name)),
    ...some(3, (name) => writers.lives(ledger, name)),
  ]
}

interface NodesReader {
  readonly database: string
  readonly reader: Reader
}

/** Readers that ask another node each time. */
function everyReader({ urls }: Cluster, ledger: Ledger): readonly NodesReader[] {
  const { NOTES, FILES, PILE } = writers
  const of = (kind: Kind, database: string): NodesReader => {
    let node = randomInt(urls.length)
    const urlOf = () => {
      node = (node + 1 + randomInt(urls.length - 1)) % urls.length
      return `${urls[node]}/${database}`
    }
    const acknowledged = {
      *[Symbol.iterator](): Iterator<[string, number]> {
        for (const [id, { known }] of ledger.docs.get(database) ?? [])
          if (known.rev !== null && !id.startsWith('purge-')) yield [id, generation(known.rev)]
      },
    }
    const options = kind === 'continuous' ? { patience: 25 } : { betweenMs: 40 }
    return { database, reader: new Reader(urlOf, acknowledged, kind, options) }
  }
  return [
    ...(['normal', 'longpoll', 'continuous'] as const).map((kind) => of(kind, NOTES)),
    ...[of('continuous', FILES), of('longpoll', PILE)],
  ]
}

/** What is wrong with a reader, after it has had time to read all of a database to which nobody writes. */
async function feedFaults(
  reader: Reader,
  { rows, token }: ReturnType<Audit['feedOf']>,
  cells: ReadonlyMap<string, Cell> | undefined,
): Promise<string[]> {
  const end = performance.now() + READ_MS
  while (numberOf(reader.since) < numberOf(token) && performance.now() < end) await sleep(20)
  const differing = [...rows.values()].filter(({ id, rev, seq }) => {
    const told = reader.rows.get(id)
    return told?.rev !== rev || told.seq !== seq
  })
  const others = [...reader.rows.keys()].filter((id) => !rows.has(id) && cells?.get(id)?.known.rev !== null)
  return [
    ...reader.faults,
    ...differing.map(({ id, rev, seq }) => {
      const told = reader.rows.get(id)
      return `${reader.name}, at ${reader.since}: ${id} is ${told?.rev} at ${told?.seq}, not ${rev} at ${seq}`
    }),
    ...others.map((id) => `${reader.name}: ${id} is not there`),
  ]
}
