/** What an attack does to the server and to its quiet tenant. */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../../helpers/until.ts'
import type { World } from './world.ts'

/** An attack runs until the signal is aborted, or ends by itself. @returns how many answers it got, by status; 0 for a cut connection */
export type Attack = (world: World, signal: AbortSignal) => Promise<Record<number, number>>

export interface Measured {
  readonly name: string
  readonly answers: Readonly<Record<number, number>>
  readonly saves: number
  readonly failed: Readonly<Record<number, number>>
  /** Of the quiet tenant's saves, in ms. */
  readonly p50: number
  readonly p99: number
  /** The longest request of an account in the attacker's network, in ms; null: it sent none. */
  readonly neighbour: number | null
  /** The longest turn of an event loop, in ms, and its thread. */
  readonly turn: number
  readonly thread: string
  /** The most memory that the server took, and what it took when the attack began, in bytes. */
  readonly peakBytes: number
  readonly startBytes: number
}

/** How long the saves are measured after an attack that has ended by itself, in ms. */
const AFTER_MS = 150

/** Nobody attacks. */
export const nobody: Attack = async (_world, signal) => {
  await once(signal, 'abort')
  return {}
}

/**
 * Lets an attack run for some time, and measures the quiet tenant's saves until the attack has ended.
 * @param milliseconds at most; an attack that has been answered earlier is over soon after
 */
export async function measure(
  world: World,
  name: string,
  attack: Attack,
  milliseconds: number,
  hasNeighbour = false,
): Promise<Measured> {
  await longestTurn(world)
  const { bytes: startBytes } = await world.quiet.look()
  const ends = new AbortController()
  world.move()
  const isOver = once(ends.signal, 'abort')
  const timer = setTimeout(() => ends.abort(), milliseconds)
  const asked = hasNeighbour ? world.neighbour(ends.signal) : null
  const answers = await attack(world, ends.signal)
  await Promise.race([isOver, sleep(AFTER_MS)])
  clearTimeout(timer)
  const neighbour = (await asked)?.at(-1) ?? null
  const { times, failed, peakBytes } = await world.quiet.look()
  const longest = await longestTurn(world)
  return {
    name,
    answers,
    saves: times.length,
    failed,
    p50: percentile(times, 0.5),
    p99: percentile(times, 0.99),
    neighbour,
    ...longest,
    peakBytes,
    startBytes,
  }
}

/** The longest turn of any thread since the last call, from the server's own metrics. */
async function longestTurn(world: World): Promise<{ turn: number; thread: string }> {
  let longest = { turn: 0, thread: '' }
  const metrics = await metricsOfAll(world)
  const lines = metrics.matchAll(/^settee_event_loop_delay_seconds\{thread="([^"]+)",stat="max"\} (\S+)$/gm)
  for (const [, thread = '', seconds] of lines) {
    const turn = Number(seconds) * 1000
    if (turn > longest.turn) longest = { turn, thread }
  }
  return longest
}

/** Asks until no thread is too busy to tell of itself: what an attack has left behind is its own. */
async function metricsOfAll({ server, headersOf }: World): Promise<string> {
  let metrics = ''
  await until('every thread tells of itself', async () => {
    const { json } = await server.ask('GET', '/_node/_local/_prometheus', undefined, headersOf('admin'))
    metrics = String(json)
    const told = threadsIn(metrics, 'settee_thread_heap_bytes')
    return threadsIn(metrics, 'settee_thread_busy_seconds_total').every((thread) => told.includes(thread))
  })
  return metrics
}

function threadsIn(metrics: string, name: string): string[] {
  return [...metrics.matchAll(new RegExp(`^${name}\\{thread="([^"]+)"\\}`, 'gm'))].map(
    ([, thread = '']) => thread,
  )
}

/** @param times in ascending order */
function percentile(times: readonly number[], part: number): number {
  return times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0
}

/** A row of the table. @param idleBytes the memory that the server took before the first attack */
export function rowOf(measured: Measured, idleBytes: number): string {
  const { name, answers, saves, failed, p50, p99, neighbour, turn, thread, peakBytes, startBytes } = measured
  const cells = [
    name,
    counts(answers),
    `${saves}${Object.keys(failed).length > 0 ? ` (${counts(failed)})` : ''}`,
    p50.toFixed(1),
    p99.toFixed(1),
    neighbour === null ? '-' : neighbour.toFixed(0),
    `${turn.toFixed(0)} ${thread}`,
    megabytes(peakBytes - startBytes),
    megabytes(peakBytes - idleBytes),
  ]
  return `| ${cells.join(' | ')} |`
}

export const HEADING = [
  '| attack | answers | saves (failed) | p50, ms | p99, ms | neighbour, ms | longest turn, ms | memory it took, MB | beyond idle, MB |',
  '|---|---|---|---|---|---|---|---|---|',
].join('\n')

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 1024 / 1024)}`
}

function counts(answers: Readonly<Record<number, number>>): string {
  const parts = Object.entries(answers).map(([status, count]) => `${status}: ${count}`)
  return parts.length > 0 ? parts.join(', ') : '-'
}
