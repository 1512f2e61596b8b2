/**
 * Random and mutated requests over every route, to a server in a process of its own, while some documents must stay
 * what they are. 100,000 requests, always the same ones, so that a change is judged by what it changed; or as many as
 * the environment says, from a random seed, which the test's name tells:
 *
 *     SETTEE_FUZZ=5000000 npx tap test/fuzz/fuzz.test.ts          the long form
 *     SETTEE_FUZZ_SEED=1234 npx tap test/fuzz/fuzz.test.ts        the requests of that seed
 *
 * The requests depend on the seed alone; in which order they meet depends on the machine as well.
 */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { Path } from '../../src/http/route-table.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { startMemoryServer } from '../http/memory-server.ts'
import { requestId } from './headers.ts'
import { brokenOff, faultOf, replay, shown } from './oracle.ts'
import { unknownParameters } from './paths.ts'
import { type FuzzRequest, RequestMaker } from './requests.ts'
import { type Outcome, sendAll } from './sender.ts'
import { readServerLog } from './server-log.ts'
import { type ServerProcess, startServerProcess } from './server-process.ts'
import { call, fillVaults, keptText, readVaults } from './vault.ts'

const { SETTEE_FUZZ, SETTEE_FUZZ_SEED } = process.env
const REQUESTS = Number(SETTEE_FUZZ ?? 10_000)
const SEED = Number(SETTEE_FUZZ_SEED ?? (SETTEE_FUZZ === undefined ? 1 : Math.floor(Math.random() * 2 ** 31)))
const MB = 1024 * 1024
/** Of the whole process, database threads and sandboxes included. */
const MAX_MEMORY = 1000 * MB
const SAMPLE_MS = 500
const MAX_SHOWN = 5
/** What `serve` allows itself at SIGTERM. */
const GRACE_MS = 10_000

t.setTimeout(300_000 + REQUESTS * 10)

t.test('every route has a generator of its path', async (t) => {
  for (const { url } of await routeTable(t)) t.strictSame(unknownParameters(url), [], url)
})

t.test(`${REQUESTS} requests, seed ${SEED}`, async (t) => {
  const paths = await routeTable(t)
  const folder = await temporaryFolder(t)
  const server = await startServerProcess(t, folder)
  const facts = await fillVaults(server.port)
  const before = await readVaults(server.port)
  const run = await fuzz(t, server, new RequestMaker(SEED, paths, facts))
  t.comment(run.summary)
  t.strictSame(run.uncovered(paths), [], 'every route was asked')
  t.ok(run.peak <= MAX_MEMORY || Number.isNaN(run.peak), `at most ${Math.round(run.peak / MB)} MB of memory`)

  const begun = performance.now()
  t.equal((await call(server.port, 'GET', '/_up')).status, 200)
  const ms = performance.now() - begun
  t.ok(ms < 2000, `answers in ${Math.round(ms)} ms`)
  await checkKept(t, server.port, before, run.kept)

  const end = await server.stop()
  t.match(end, { code: 0, stderr: '' })
  t.ok(end.ms < GRACE_MS, `stopped in ${Math.round(end.ms)} ms`)
  const log = await readServerLog(server.logFile)
  t.strictSame(log.faults.slice(0, MAX_SHOWN), [], `${log.faults.length} faults in the log`)
  const unexplained = [...run.brokenOff].filter(([id]) => !log.brokenOff.has(id))
  t.strictSame(unexplained, [], `${run.brokenOff.size} answers broke off, each for a reason in the log`)
  for (const [, { request }] of unexplained.slice(0, MAX_SHOWN)) t.comment(replay(request, SEED, server.port))
  await checkFiles(t, server.dataDir)

  const again = await startServerProcess(t, folder)
  await checkKept(t, again.port, before, run.kept)
  t.match(await again.stop(), { code: 0 })
})

async function routeTable(t: Test): Promise<readonly Path[]> {
  return (await startMemoryServer(t)).app.paths
}

/** What there was of an answer when it broke off, and after how many milliseconds. */
interface BrokenOff {
  readonly request: FuzzRequest
  readonly ms: number
  readonly answer: string
}

interface Run {
  readonly summary: string
  /** Bytes. */
  readonly peak: number
  /** By the ids of the requests. */
  readonly brokenOff: ReadonlyMap<string, BrokenOff>
  /** The documents that were acknowledged, members by path. */
  readonly kept: ReadonlyMap<string, string>
  uncovered(paths: readonly Path[]): string[]
}

async function fuzz(t: Test, server: ServerProcess, maker: RequestMaker): Promise<Run> {
  const tally = new Tally(t, server.port)
  const samples = [server.memory()]
  const sampling = setInterval(() => samples.push(server.memory()), SAMPLE_MS)
  const begun = performance.now()
  let made = 0
  const sending = sendAll({
    port: server.port,
    next: () => (made++ < REQUESTS ? maker.next() : undefined),
    done: (outcome) => tally.add(outcome),
  })
  const early = await Promise.race([sending, server.ended])
  clearInterval(sampling)
  if (early !== undefined) {
    for (const request of tally.latest) t.comment(replay(request, SEED, server.port))
    throw new Error(`the server ended: ${JSON.stringify(early)}`)
  }
  const peak = Math.max(...samples)
  const seconds = (performance.now() - begun) / 1000
  return {
    summary: `${seconds.toFixed(1)} s; MB of memory by tenths: ${tenths(samples)}; ${tally.summary()}`,
    peak,
    brokenOff: tally.brokenOff,
    kept: tally.kept,
    uncovered: (paths) => paths.map(({ url }) => url).filter((url) => !tally.routes.has(url)),
  }
}

/** The mean of each tenth of the samples, in MB. */
function tenths(samples: readonly number[]): string {
  const means = Array.from({ length: 10 }, (_, tenth) => {
    const part = samples.slice((tenth * samples.length) / 10, ((tenth + 1) * samples.length) / 10)
    return Math.round(part.reduce((sum, each) => sum + each, 0) / part.length / MB)
  })
  return means.join(' ')
}

/** Holds every outcome against the oracle, and counts. */
class Tally {
  readonly #t: Test
  readonly #port: number
  readonly #statuses = new Map<number, number>()
  readonly routes = new Set<string>()
  readonly kept = new Map<string, string>()
  /** The requests that were answered last. */
  latest: FuzzRequest[] = []
  readonly brokenOff = new Map<string, BrokenOff>()
  #left = 0
  #failures = 0
  #slowest = 0

  constructor(t: Test, port: number) {
    this.#t = t
    this.#port = port
  }

  add(outcome: Outcome): void {
    const { request, answers, ms } = outcome
    this.routes.add(request.route)
    this.latest = [...this.latest.slice(-19), request]
    for (const { status } of answers) this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1)
    for (const answer of brokenOff(outcome)) {
      const id = answer.headers['x-couch-request-id'] ?? requestId(request.index)
      this.brokenOff.set(id, { request, ms, answer: shown(answer) })
    }
    if (outcome.hasLeft) this.#left++
    else this.#slowest = Math.max(this.#slowest, ms)
    if (request.keeps && answers[0]?.status === 201) this.kept.set(request.keeps.path, request.keeps.members)
    const fault = faultOf(outcome)
    if (fault !== null) this.#fail(request, fault)
  }

  summary(): string {
    const statuses = [...this.#statuses]
      .sort(([a], [b]) => a - b)
      .map(([status, times]) => `${status}: ${times}`)
    return `slowest ${Math.round(this.#slowest)} ms; left ${this.#left}; ${statuses.join(', ')}`
  }

  #fail(request: FuzzRequest, fault: string): void {
    this.#failures++
    if (this.#failures > MAX_SHOWN) return
    this.#t.fail(fault.slice(0, 1500))
    this.#t.comment(replay(request, SEED, this.#port))
  }
}

async function checkKept(
  t: Test,
  port: number,
  before: ReadonlyMap<string, string>,
  kept: ReadonlyMap<string, string>,
): Promise<void> {
  t.strictSame(await readVaults(port), before, 'what was there before is what it was')
  const changed: string[] = []
  for (const [path, members] of kept) {
    const { text } = await call(port, 'GET', path)
    if (text !== keptText(path, members, text)) changed.push(`${path}: ${text.slice(0, 300)}`)
  }
  t.strictSame(changed, [], `${kept.size} acknowledged documents are what they were`)
}

async function checkFiles(t: Test, dataDir: string): Promise<void> {
  const folder = join(dataDir, 'databases')
  const files = (await readdir(folder))
    .filter((name) => name.endsWith('.sqlite'))
    .map((name) => join(folder, name))
  for (const file of [join(dataDir, 'server.sqlite'), ...files]) {
    const database = new Database(file, { readonly: true })
    t.strictSame(database.pragma('integrity_check'), [{ integrity_check: 'ok' }], file)
    t.strictSame(database.pragma('foreign_key_check'), [], file)
    if (files.includes(file)) t.equal(miscounted(database), 0, `each document's leaves are counted: ${file}`)
    database.close()
  }
  t.strictSame(await readdir(join(dataDir, 'tmp')), [], 'no body is left')
}

/** Documents that do not say how many leaves they have. */
function miscounted(database: Database.Database): number {
  const leaves = '(SELECT count(*) FROM revision AS r WHERE r.doc = d.num AND r.leaf)'
  return database.prepare(`SELECT count(*) FROM doc AS d WHERE d.leaves <> ${leaves}`).pluck().get() as number
}
