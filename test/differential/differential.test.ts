/**
 * The same random requests to settee and to a running CouchDB, whose answers must be alike but for what
 * docs/compatibility.md declares. It needs the address of a CouchDB 3.5 with an admin:
 *
 *     SETTEE_COUCHDB=http://admin:password@127.0.0.1:5984 SETTEE_DIFFERENTIAL=20000 \
 *       npx tap --timeout=0 test/differential/differential.test.ts
 *
 * The other variables are in docs/testing.md. A case is a seed: families/ makes its requests. A new difference is a fault to
 * mend as CouchDB does, or a row of docs/compatibility.md with its reason and, in declared/, how it is known: no wider than
 * what the row says, since whatever it explains is not looked at again.
 */
import { readFile } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { makeCase } from './cases.ts'
import { DECLARED_ROWS } from './declared.ts'
import {
  type Calls,
  type Difference,
  firstDifference,
  kindOf,
  type Outcome,
  runCase,
  smallest,
} from './pair.ts'
import { Server, Side } from './side.ts'
import { type Case, type Step, shown } from './step.ts'

const {
  SETTEE_COUCHDB,
  SETTEE_DIFFERENTIAL = '400',
  SETTEE_DIFFERENTIAL_SEED = '1',
  SETTEE_DIFFERENTIAL_FAMILY,
} = process.env
const REQUESTS = Number(SETTEE_DIFFERENTIAL)
const SEED = Number(SETTEE_DIFFERENTIAL_SEED)
/** Cases at a time; many of them wait for replications. */
const LANES = 8
const MAX_SHOWN = Number(process.env.SETTEE_DIFFERENTIAL_SHOWN ?? 10)

t.setTimeout(300_000 + REQUESTS * 200)

t.test('each declared difference has its row', async (t) => {
  const page = await readFile(new URL('../../docs/compatibility.md', import.meta.url), 'utf8')
  const rows = page
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .map((line) => line.slice(2).replaceAll('`', ''))
  for (const row of DECLARED_ROWS)
    t.ok(
      rows.some((each) => each.startsWith(row)),
      row,
    )
})

t.test(
  `${REQUESTS} requests, seed ${SEED}`,
  { skip: SETTEE_COUCHDB === undefined && 'it needs a CouchDB' },
  async (t) => {
    const couchdb = new Server(SETTEE_COUCHDB as string)
    const settee = new Server(await startSettee(t))
    t.teardown(() => [couchdb, settee].map((server) => server.close()))
    await Promise.all([couchdb, settee].map((server) => admitWrongPasswords(t, server)))
    const tally = new Tally(t)
    const seeds = seedsFrom(SEED)
    const lane = async () => {
      while (tally.requests < REQUESTS && tally.kinds.size < MAX_SHOWN) {
        const asked = makeCase(seeds(), SETTEE_DIFFERENTIAL_FAMILY)
        const outcome = await runCase(couchdb, settee, asked)
        const { difference } = outcome
        tally.add(outcome)
        if (difference === null || !tally.isNew(difference)) continue
        const steps = await smallest(couchdb, settee, asked, kindOf(difference))
        const { difference: last } = await runCase(couchdb, settee, { seed: asked.seed, steps })
        tally.show(asked, steps, last ?? difference)
      }
    }
    await Promise.all(Array.from({ length: LANES }, lane))
    t.comment(tally.summary())
    t.equal(tally.kinds.size, 0, 'no difference that nobody has declared')
  },
)

function seedsFrom(first: number): () => number {
  let next = first * 100_000
  return () => next++
}

/** Each case logs in with wrong passwords, all from one address, which would be locked out. */
async function admitWrongPasswords(t: Test, server: Server): Promise<void> {
  const step = { path: '/_node/_local/_config/chttpd_auth_lockout/mode' }
  const side = new Side(server, 'setup')
  t.match(await side.ask({ ...step, method: 'PUT', body: JSON.stringify('off') }), { status: 200 })
  t.teardown(() => side.ask({ ...step, method: 'DELETE' }))
}

/** With CouchDB's way of storing attachments, and an admin of the same name. */
async function startSettee(t: Test): Promise<string> {
  const { username, password } = new URL(SETTEE_COUCHDB as string)
  const auth = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  const [COUCHDB_USER = '', COUCHDB_PASSWORD = ''] = auth.split(':')
  const server = await startTestServer(t, {
    env: { COUCHDB_USER, COUCHDB_PASSWORD, NODENAME: 'couchdb@127.0.0.1' },
  })
  // CouchDB's defaults; test servers hash in fewer rounds.
  for (const [key, value] of [
    ['attachments/compression_level', '8'],
    ['chttpd_auth/iterations', '600000'],
  ])
    await server.request('PUT', `/_node/_local/_config/${key}`, { auth, body: JSON.stringify(value) })
  await server.request('PUT', '/_replicator', { auth })
  return server.url.replace('://', `://${username}:${password}@`)
}

class Tally {
  readonly #t: Test
  readonly #calls = new Map<string, Calls>()
  readonly #rows = new Map<string, Map<string, number>>()
  readonly kinds = new Set<string>()
  requests = 0

  constructor(t: Test) {
    this.#t = t
  }

  add({ requests, calls, declared }: Outcome): void {
    this.requests += requests
    for (const [call, { made, accepted }] of calls) {
      const before = this.#calls.get(call)
      this.#calls.set(call, {
        made: made + (before?.made ?? 0),
        accepted: accepted + (before?.accepted ?? 0),
      })
    }
    for (const { row, kind } of declared) {
      const kinds = this.#rows.get(row) ?? new Map<string, number>()
      this.#rows.set(row, kinds.set(kind, (kinds.get(kind) ?? 0) + 1))
    }
  }

  isNew(difference: Difference): boolean {
    const kind = kindOf(difference)
    if (this.kinds.has(kind)) return false
    this.kinds.add(kind)
    return true
  }

  show(asked: Case, steps: readonly Step[], difference: Difference): void {
    this.#t.fail(kindOf(difference), { diagnostic: false })
    const { what, couchdb, settee } = difference
    const lines = [
      `seed ${asked.seed}, ${steps.length} requests of ${asked.steps.length}; differs: ${what.join(', ')}`,
      ...steps.map(shown),
      `first at ${firstDifference(couchdb, settee)}`,
      `CouchDB: ${JSON.stringify(couchdb)}`,
      `settee:  ${JSON.stringify(settee)}`,
    ]
    for (const line of lines) this.#t.comment(line.slice(0, 1500))
  }

  /** Requests by call, and declared differences by row, with the kinds that each row has explained. */
  summary(): string {
    const calls = [...this.#calls]
      .sort(([, a], [, b]) => b.made - a.made)
      .map(([call, { made, accepted }]) => `${made} (${accepted} accepted) ${call}`)
    const rows = [...this.#rows]
      .map(([row, kinds]) => ({ row, kinds: byNumber(kinds), times: sum(kinds.values()) }))
      .sort((a, b) => b.times - a.times)
    return [
      `${this.requests} requests; by call:`,
      ...calls,
      `${sum(rows.map(({ times }) => times))} declared differences; by row:`,
      ...rows.map(({ row, times }) => `${times} × ${row}`),
      'by row and kind:',
      ...rows.flatMap(({ row, kinds }) => kinds.map(([kind, times]) => `${row} << ${times} × ${kind}`)),
    ].join('\n')
  }
}

function byNumber(counts: ReadonlyMap<string, number>): [string, number][] {
  return [...counts].sort(([, a], [, b]) => b - a)
}

function sum(numbers: Iterable<number>): number {
  return [...numbers].reduce((total, each) => total + each, 0)
}
