/** Both servers in the course of a case, and the first step whose answers differ. */
import { setTimeout } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { type Comparable, comparable, Symbols } from './comparable.ts'
import { declarationOf, silentRow } from './declared.ts'
import { type Answer, type Server, Side } from './side.ts'
import { type Case, callOf, type Step, shown } from './step.ts'

/** Two answers to a step that are not alike. */
export interface Difference {
  /** `status`, `body`, or `header` and a name. */
  readonly what: readonly string[]
  readonly at: number
  readonly step: Step
  /** The requests before it, as text. */
  readonly before: string
  readonly couchdb: Comparable
  readonly settee: Comparable
}

/** How often a call was made, and how often CouchDB accepted it. */
export interface Calls {
  readonly made: number
  readonly accepted: number
}

export interface Outcome {
  readonly requests: number
  readonly calls: ReadonlyMap<string, Calls>
  /** The declared differences, by their rows. */
  readonly declared: readonly { readonly row: string; readonly kind: string }[]
  /** Nobody has declared it. */
  readonly difference: Difference | null
}

/** The names of another run have left tombstones of accounts. */
const RUN = Date.now().toString(36)
let serial = 0

/** Sends the steps to both, until the answers to one differ. Both are without the databases and accounts of the case afterwards. */
export async function runCase(couchdb: Server, settee: Server, { steps, seed }: Case): Promise<Outcome> {
  const name = `${RUN}-${seed}-${serial++}`
  const sides = [couchdb, settee].map((server) => new Side(server, name)) as [Side, Side]
  try {
    return await compareSteps(sides, steps)
  } finally {
    await Promise.all(sides.map(clean))
  }
}

const CLEANING: readonly Step[] = ['/{db}', '/{other}', '/{repl}', '/{db}%2Fx%2F'].map((path) => ({
  method: 'DELETE',
  path,
}))

const ACCOUNT = '/_users/org.couchdb.user:{user}'

async function clean(side: Side): Promise<void> {
  await Promise.all(CLEANING.map((step) => side.ask(step)))
  const { status } = await side.ask({ method: 'HEAD', path: ACCOUNT })
  if (status === 200) await side.ask({ method: 'DELETE', path: `${ACCOUNT}?rev={etag}` })
}

async function compareSteps(sides: readonly [Side, Side], steps: readonly Step[]): Promise<Outcome> {
  const given = steps.map(shown).join('\n').toLowerCase()
  const symbols = sides.map(() => new Symbols((hash) => given.includes(hash))) as [Symbols, Symbols]
  const declared: { row: string; kind: string }[] = []
  const calls = new Map<string, Calls>()
  for (const [at, step] of steps.entries()) {
    const answers = await ask(sides, step, given)
    const [couchdb, settee] = sides.map((side, of) => {
      symbols[of]?.begin(at)
      return comparable(step, answers[of] as Answer, side.origin, symbols[of] as Symbols)
    }) as [Comparable, Comparable]
    if (step.path.includes('batch=ok')) await setTimeout(BATCH_MS)
    const call = callOf(step)
    const { made, accepted } = calls.get(call) ?? { made: 0, accepted: 0 }
    const isAccepted = couchdb.status > 0 && couchdb.status < 400
    calls.set(call, { made: made + 1, accepted: accepted + Number(isAccepted) })
    const what = differing(couchdb, settee)
    if (what.length === 0) {
      const row = silentRow(step, couchdb.status)
      if (row === undefined) continue
      const kind = `effect ${call}`
      return { requests: at + 1, calls, declared: [...declared, { row, kind }], difference: null }
    }
    const before = steps.slice(0, at).map(shown).join('\n')
    const difference = { what, at, step, before, couchdb, settee }
    const found = what.map((each) => declarationOf(each, difference))
    const rows = found.map((each) => each?.row)
    if (rows.includes(undefined)) {
      const undeclared = what.filter((_, index) => rows[index] === undefined)
      return { requests: at + 1, calls, declared, difference: { ...difference, what: undeclared } }
    }
    for (const row of new Set(rows as string[])) {
      const parts = what.filter((_, index) => rows[index] === row)
      declared.push({ row, kind: kindOf({ ...difference, what: parts }) })
    }
    // What a write did differently, later answers would show again.
    const isWrite = step.method !== 'GET' && step.method !== 'HEAD'
    const differs = what.some((each) => !each.startsWith('header '))
    // A revision that only one of them has shown so far has another name in later answers.
    const isUnseen = before.includes('batch=ok')
    if (found.some((each) => each?.lasts) || (differs && (isWrite || isUnseen))) {
      return { requests: at + 1, calls, declared, difference: null }
    }
  }
  return { requests: steps.length, calls, declared, difference: null }
}

/** How long CouchDB may take to write what it has accepted with `batch=ok`, in ms. */
const BATCH_MS = 200

/** How often, and how many milliseconds apart, CouchDB is asked again whether it knows an account. */
const AGAIN = { times: 20, pauseMs: 100 }

/** Both answers to a step. A cache of CouchDB learns of a changed account a moment later. */
async function ask(sides: readonly [Side, Side], step: Step, given: string): Promise<[Answer, Answer]> {
  let [couchdb, settee] = await Promise.all([sides[0].ask(step), sides[1].ask(step)])
  const isHarmless = ['GET', 'HEAD'].includes(step.method) || step.path.startsWith('/_session')
  const differ = () => (couchdb.status === 401) !== (settee.status === 401)
  if (!given.includes('/_users/') || !differ()) return [couchdb, settee]
  for (let times = AGAIN.times; times > 0 && differ() && (isHarmless || couchdb.status === 401); times--) {
    await setTimeout(AGAIN.pauseMs)
    couchdb = await sides[0].ask(step)
  }
  return [couchdb, settee]
}

function differing(couchdb: Comparable, settee: Comparable): string[] {
  const names = new Set([...Object.keys(couchdb.headers), ...Object.keys(settee.headers)])
  const headers = [...names].filter((name) => couchdb.headers[name] !== settee.headers[name])
  return [
    ...(couchdb.status === settee.status ? [] : ['status']),
    ...headers.map((name) => `header ${name}`),
    ...(isDeepStrictEqual(couchdb.body, settee.body) ? [] : ['body']),
  ]
}

/** What kind of difference it is: two of a kind are shown once. */
export function kindOf({ what, step, couchdb, settee }: Difference): string {
  const path = step.path
    .replace(/\?.*/, '')
    .replace(/(\{\w+\})\/[^_/][^/]*/, '$1/x')
    .replace(/(_local|_show|_update)\/.+/, '$1/x')
  const error = ({ status, body }: Comparable) =>
    `${status} ${(body as { error?: string } | null)?.error ?? ''}`
  return `${what.join()} ${step.method} ${path}: ${error(couchdb)}, ${error(settee)}`
}

/** How long {@link smallest} tries. */
const SHRINKING_MS = 60_000

/** @returns few steps that show a difference of the kind */
export async function smallest(
  couchdb: Server,
  settee: Server,
  { seed, steps }: Case,
  kind: string,
): Promise<readonly Step[]> {
  const began = performance.now()
  let least = steps
  for (let size = Math.ceil(least.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = least.length - 1 - size; at >= 0; at -= size) {
      if (performance.now() - began > SHRINKING_MS) return least
      const fewer = least.toSpliced(Math.max(at, 0), size)
      const { difference } = await runCase(couchdb, settee, { seed, steps: fewer })
      if (difference !== null && kindOf(difference) === kind) least = fewer.slice(0, difference.at + 1)
    }
  }
  return least
}

/** Where two values differ first, such as `rows.0.value`, and both values there. */
export function firstDifference(a: unknown, b: unknown, at = ''): string {
  if (isContainer(a) && isContainer(b) && Array.isArray(a) === Array.isArray(b)) {
    const keys = new Set([...Object.keys(a), ...Object.keys(b)])
    const [one, other] = [a, b] as [Record<string, unknown>, Record<string, unknown>]
    const key = [...keys].find((key) => !isDeepStrictEqual(one[key], other[key]))
    if (key !== undefined) return firstDifference(one[key], other[key], `${at}.${key}`)
  }
  return `${at}: ${JSON.stringify(a)} and ${JSON.stringify(b)}`
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null
}
