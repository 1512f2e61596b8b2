/**
 * Backups during many writes: each copy is a state that the database had, and no write waits long. The long form runs
 * for the given number of seconds:
 *
 *     BACKUP_LOAD_SECONDS=600 npx tap test/full/faults/backup-load.test.ts
 */
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { backUp, wrongSums } from '../../backup/server.ts'
import { startTestServer, type TestServer } from '../../helpers/server.ts'

const SECONDS = Number(process.env.BACKUP_LOAD_SECONDS ?? 10)
const LEAST_BACKUPS = 3
const DATABASES = ['one', 'two']
const WRITERS = 4
const TEXT = 'x'.repeat(2000)

t.setTimeout((SECONDS + 250) * 1000)

/** A writer stores one document at a time, each after the previous one is acknowledged. */
class Chain {
  /** The numbers of sent and of acknowledged documents. */
  asked = 0
  acknowledged = 0
  readonly latencies: number[] = []
  isOver = false
  readonly database: string
  readonly prefix: string

  constructor(database: string, number: number) {
    this.database = database
    this.prefix = `w${number}-`
  }

  async run(server: TestServer): Promise<void> {
    while (!this.isOver) {
      const began = performance.now()
      this.asked += 1
      const id = `${this.prefix}${String(this.asked).padStart(7, '0')}`
      const { status } = await server.request('PUT', `/${this.database}/${id}`, {
        body: { n: this.asked, TEXT },
      })
      if (status !== 201) throw new Error(`${id}: ${status}`)
      this.acknowledged = this.asked
      this.latencies.push(performance.now() - began)
    }
  }
}

/** How many documents of each chain a copy holds; throws when one is missing in between. */
async function chainsIn(copy: string, chains: readonly Chain[]): Promise<number[]> {
  const dataDir = await mkdtemp(join(tmpdir(), 'settee-load-'))
  await mkdir(join(dataDir, 'databases'))
  await cp(copy, join(dataDir, 'databases', 'copy.sqlite'))
  const engine = sqliteEngine({ dataDir })
  try {
    const store = await engine.openDatabase('copy')
    const { rows, view } = await store.readRange({}, { limit: 10_000_000 }, ({ id }) => id)
    if (view.docCount !== rows.length) throw new Error('a count is wrong')
    return chains.map(({ prefix }) => {
      const own = rows.filter((id) => id.startsWith(prefix))
      own.forEach((id, at) => {
        if (Number(id.slice(prefix.length)) !== at + 1) throw new Error(`before ${id} something is missing`)
      })
      return own.length
    })
  } finally {
    await engine.close()
    await rm(dataDir, { recursive: true, force: true })
  }
}

function percentile(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN
}

t.test('each copy is a state that the database had', async (t) => {
  const server = await startTestServer(t)
  for (const name of DATABASES) {
    await server.request('PUT', `/${name}`)
    for (let round = 0; round < 5; round++) {
      const docs = Array.from({ length: 1000 }, (_, n) => ({ _id: `old-${round}-${n}`, TEXT }))
      await server.request('POST', `/${name}/_bulk_docs`, { body: { docs } })
    }
  }
  const chains = DATABASES.flatMap((name) => Array.from({ length: WRITERS }, (_, n) => new Chain(name, n)))
  const writing = Promise.all(chains.map((chain) => chain.run(server)))
  const quiet = Date.now() + 2000
  while (Date.now() < quiet) await server.request('GET', '/_up')
  const before = chains.flatMap(({ latencies }) => latencies.splice(0))
  const end = Date.now() + SECONDS * 1000
  let backups = 0
  while (Date.now() < end || backups < LEAST_BACKUPS) {
    const least = chains.map(({ acknowledged }) => acknowledged)
    const made = await backUp(server)
    const most = chains.map(({ asked }) => asked)
    if (made === undefined) throw new Error('a backup failed')
    backups += 1
    const folder = join(server.dataDir, 'backups', made.id)
    t.strictSame([made.left_out, await wrongSums(folder)], [[], []])
    for (const name of DATABASES) {
      const own = chains.filter(({ database }) => database === name)
      const found = await chainsIn(join(folder, 'databases', `${name}.sqlite`), own)
      const isBetween = own.every((chain, at) => {
        const place = chains.indexOf(chain)
        return (
          (found[at] as number) >= (least[place] as number) &&
          (found[at] as number) <= (most[place] as number)
        )
      })
      t.ok(isBetween, `${name}: ${found} of ${most}`)
    }
    await server.request('DELETE', `/_settee/backups/${made.id}`)
  }
  const during = chains.flatMap(({ latencies }) => latencies.splice(0))
  for (const chain of chains) chain.isOver = true
  await writing
  const told = (values: readonly number[]) =>
    `${values.length} writes, p50 ${percentile(values, 0.5).toFixed(1)} ms, p99 ${percentile(values, 0.99).toFixed(1)} ms`
  t.comment(`${backups} backups; without one ${told(before)}; with one ${told(during)}`)
  t.equal((await server.request('GET', '/_up?deep=1')).status, 200)
})
