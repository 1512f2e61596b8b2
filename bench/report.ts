/** The output of the bench. */
import { spawnSync } from 'node:child_process'
import { cpus, loadavg } from 'node:os'
import { medianOf } from './load.ts'
import type { LoadClient } from './load-client.ts'
import type { Peer } from './peer.ts'
import type { Figure } from './trial.ts'

/** A figure with its trial and its peer. */
export interface Result extends Figure {
  readonly trial: string
  readonly peer: string
}

/** @returns the time and the machine of the measurement. Call it before the load begins */
export function circumstances(args: readonly string[], client: LoadClient, peers: readonly Peer[]): string {
  const { stdout } = spawnSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' })
  return [
    `command     npm run bench -- ${args.join(' ')}`,
    `when        ${new Date().toISOString()}, commit ${stdout?.trim() || 'unknown'}`,
    `where       ${cpus().length} x ${cpus()[0]?.model.trim()}, Node ${process.version}`,
    `client      ${client === 'c' ? 'load-client.c' : client}`,
    `load        ${loadavg()[0]?.toFixed(2)} in the minute before`,
    ...peers.map(({ name, durability }) => `durability  ${name}: ${durability}`),
    ...peers.flatMap(({ name, startMs }) =>
      startMs === undefined ? [] : [`started     ${name}: ${Math.round(startMs)} ms to its first answer`],
    ),
  ].join('\n')
}

/** @returns each figure of the first round, with the median of all rounds */
export function medians(rounds: readonly (readonly Result[])[]): Result[] {
  const [first = []] = rounds
  const keyOf = ({ trial, name, unit, peer, at }: Result) => `${trial} ${name} ${at ?? ''} ${unit} ${peer}`
  const values = new Map<string, number[]>()
  for (const result of rounds.flat()) {
    const key = keyOf(result)
    values.set(key, [...(values.get(key) ?? []), result.value])
  }
  return first.map((result) => ({ ...result, value: medianOf(values.get(keyOf(result)) ?? []) }))
}

/** @returns a Markdown table: one row per figure, one column per peer */
export function table(results: readonly Result[]): string {
  const names = [...new Set(results.map(({ peer }) => peer))]
  const rows = new Map<string, Map<string, number>>()
  for (const { trial, name, unit, peer, value, at } of results) {
    const row = `${trial} | ${name}${at === undefined ? '' : `, at ${at}/s`} | ${unit}`
    rows.set(row, (rows.get(row) ?? new Map<string, number>()).set(peer, value))
  }
  const lines = [...rows].map(([row, values]) => line(row, ...names.map((name) => shown(values.get(name)))))
  return [
    line('trial', 'figure', 'unit', ...names),
    line('---', '---', '---', ...names.map(() => '---:')),
    ...lines,
  ].join('\n')
}

function line(...cells: string[]): string {
  return `| ${cells.join(' | ')} |`
}

function shown(value: number | undefined): string {
  if (value === undefined) return '-'
  if (value < 10) return value.toFixed(2)
  return value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString('en')
}
