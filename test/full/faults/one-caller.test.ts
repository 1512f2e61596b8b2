/**
 * One malicious caller, and a quiet tenant that saves every 50 ms. During all attacks, no turn of a thread takes more
 * than 50 ms, memory grows by at most 150 MB over the idle server, and the tenant's saves stay fast. The attacks are
 * known ones, and every route with the largest body that it accepts.
 *
 * The long form attacks for ten seconds each and prints the table of docs/reliability.md: `SETTEE_ONE_CALLER=long`.
 */
import t, { type Test } from 'tap'
import { ATTACKS, type NamedAttack } from '../../faults/one-caller/attacks.ts'
import { HEADING, type Measured, measure, nobody, rowOf } from '../../faults/one-caller/measure.ts'
import { routeAttacks } from '../../faults/one-caller/routes.ts'
import { type Mode, startWorld, type World } from '../../faults/one-caller/world.ts'
import { startMemoryServer } from '../../http/memory-server.ts'

const MB = 1024 * 1024
const IS_LONG = process.env.SETTEE_ONE_CALLER === 'long'
const ATTACK_MS = IS_LONG ? 10_000 : 1500
const ROUTE_MS = IS_LONG ? 3000 : 400
const WARM_UP_MS = IS_LONG ? 1000 : 500
const QUIET_MS = IS_LONG ? 10_000 : 1500
/**
 * The long form checks the aim of 50 ms and 150 MB; docs/reliability.md lists the exceptions. The short form has limits
 * for a busy machine, where a thread may wait for a processor, and V8 keeps the garbage of many attacks.
 */
const TURN_MS = IS_LONG ? 50 : 250
const MEMORY = (IS_LONG ? 150 : 250) * MB
/** How much slower a save's 99th percentile may be than without an attack, here or in the bench. */
const SLOWER = 3
/** How long a new connection of an account may wait in the network of an attacker, in ms. Its client shares a thread with the attack. */
const NEIGHBOUR_MS = IS_LONG ? 500 : 1000
/** In ms: the 99th percentile of a quiet tenant's saves before a flood (bench/RESULTS.md, `tenants --hosted`). */
const BENCH_P99 = 29.6
/** A shared machine sometimes stalls by itself, so only a problem in every attempt counts. */
const TRIES = 3

t.setTimeout(IS_LONG ? 3_600_000 : 300_000)

t.test('attacks on a hosted server', async (t) => {
  await underAttack(t, await startWarm(t, 'hosted'))
})

t.test('attacks on a single server', async (t) => {
  await underAttack(t, await startWarm(t, 'single'))
})

// Each on a server of its own: otherwise what the attacks leave behind counts as memory that the routes took.
for (const mode of ['hosted', 'single'] as const) {
  t.test(`every route of a ${mode} server`, async (t) => {
    await everyRoute(t, await startWarm(t, mode))
  })
}

interface Warm {
  readonly world: World
  /** What was measured while nobody attacked. */
  readonly quiet: Measured
}

async function startWarm(t: Test, mode: Mode): Promise<Warm> {
  const world = await startWorld(t, mode)
  await measure(world, 'warming up', nobody, WARM_UP_MS)
  const quiet = await measure(world, 'nobody', nobody, QUIET_MS)
  t.comment(`${mode}\n${HEADING}\n${rowOf(quiet, quiet.peakBytes)}`)
  return { world, quiet }
}

async function underAttack(t: Test, { world, quiet }: Warm): Promise<void> {
  for (const { name, run, hasNeighbour, mode } of ATTACKS) {
    if (mode !== world.mode) continue
    const measured = await best(world, name, run, (seen) => faultOf(seen, quiet), { hasNeighbour })
    t.comment(rowOf(measured, quiet.peakBytes))
    t.equal(faultOf(measured, quiet), '', name)
  }
}

/** One round of all shapes for each route. */
async function everyRoute(t: Test, { world, quiet }: Warm): Promise<void> {
  const { app } = await startMemoryServer(t)
  const slow: Measured[] = []
  for (const { name, run } of routeAttacks(app.paths)) {
    const measured = await best(world, name, run, (seen) => faultOf(seen, quiet), { milliseconds: ROUTE_MS })
    t.comment(rowOf(measured, quiet.peakBytes))
    if (faultOf(measured, quiet) !== '') slow.push(measured)
  }
  t.same(
    slow.map((measured) => `${measured.name}: ${faultOf(measured, quiet)}`),
    [],
  )
}

/** The first attempt that passes, or else the last one. */
async function best(
  world: World,
  name: string,
  run: NamedAttack['run'],
  fault: (measured: Measured) => string,
  { milliseconds = ATTACK_MS, hasNeighbour }: { milliseconds?: number; hasNeighbour?: true | undefined },
): Promise<Measured> {
  for (let attempt = 1; ; attempt += 1) {
    const measured = await measure(world, name, run, milliseconds, hasNeighbour)
    if (attempt === TRIES || fault(measured) === '') return measured
  }
}

/** @returns the problem as a text; empty if there is none */
function faultOf(measured: Measured, quiet: Measured): string {
  const { failed, p99, neighbour, turn, thread, peakBytes } = measured
  const faults = [
    Object.keys(failed).length > 0 && `saves failed: ${JSON.stringify(failed)}`,
    (neighbour ?? 0) > NEIGHBOUR_MS &&
      `an account of the same network waited ${Math.round(neighbour ?? 0)} ms`,
    turn > TURN_MS && `a turn of ${thread} took ${Math.round(turn)} ms`,
    peakBytes - quiet.peakBytes > MEMORY &&
      `memory grew by ${Math.round((peakBytes - quiet.peakBytes) / MB)} MB`,
    p99 > SLOWER * Math.max(quiet.p99, BENCH_P99) &&
      `saves took ${p99.toFixed(1)} ms, without the attack ${quiet.p99.toFixed(1)} ms`,
  ]
  return faults.filter(Boolean).join('; ')
}
