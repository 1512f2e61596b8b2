/** `settee size`: shows what takes up space in databases. */
import type { SizeRow } from '../control/control-commands.ts'
import type { DatabaseSize } from '../documents/database.ts'
import type { SizeCommand } from './backup-arguments.ts'
import { dataFolder, withControl } from './operate.ts'

/** @returns the exit code: 1 if it failed, or could not read a database */
export async function runSizeCommand(command: SizeCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const rows = await withControl(dataFolder(command.data, env), env, (controls) =>
      controls.listSizes({ database: command.database }),
    )
    process.stdout.write(command.json ? jsonOf(rows) : tableOf(rows))
    const faults = rows.flatMap(({ database, fault }) => (fault === null ? [] : [`${database}: ${fault}`]))
    for (const fault of faults) console.error(`settee: ${fault}`)
    return faults.length > 0 ? 1 : 0
  } catch (error) {
    console.error(`settee: ${(error as Error).message.replaceAll(/\s*[\r\n]+\s*/g, ' ')}`)
    return 1
  }
}

/** One line of JSON for each database, as in the answer of `GET /_settee/databases/{db}/size`. */
function jsonOf(rows: readonly SizeRow[]): string {
  return rows
    .map(({ database, size, fault }) => {
      if (size === null) return `${JSON.stringify({ database, fault })}\n`
      const { file, views, ...parts } = size
      return `${JSON.stringify({ database, file, parts, views })}\n`
    })
    .join('')
}

type Bytes = (size: DatabaseSize) => number

const COLUMNS: Readonly<Record<string, Bytes>> = {
  file: ({ file }) => file,
  live: ({ live }) => live.bytes,
  old: ({ old }) => old.bytes,
  kept: ({ kept }) => kept.bytes,
  tombstones: ({ tombstones }) => tombstones.bytes,
  attachments: ({ attachments }) => attachments.bytes,
  other: ({ indexes, local }) => indexes.bytes + local.bytes,
  free: ({ free, log }) => (free?.bytes ?? 0) + (log?.bytes ?? 0),
}

/** A line for each database, and a total if there are several. Empty if there are no databases. */
export function tableOf(rows: readonly SizeRow[]): string {
  const read = rows.flatMap(({ database, size }) => (size === null ? [] : [{ database, size }]))
  if (read.length === 0) return ''
  const columns = Object.values(COLUMNS)
  const lines = read.map(({ database, size }) => [
    database,
    ...columns.map((bytesOf) => shown(bytesOf(size))),
  ])
  const sums = columns.map((bytesOf) => shown(read.reduce((sum, { size }) => sum + bytesOf(size), 0)))
  const table = [
    ['database', ...Object.keys(COLUMNS)],
    ...lines,
    ...(read.length > 1 ? [['all', ...sums]] : []),
  ]
  const widths = table[0]!.map((_, at) => Math.max(...table.map((line) => line[at]!.length)))
  return table.map((line) => `${aligned(line, widths)}\n`).join('')
}

function aligned(line: readonly string[], widths: readonly number[]): string {
  return line.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]!) : cell.padStart(widths[at]!))).join('  ')
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const

/** Bytes with three digits, in powers of 1000: `0 B`, `999 B`, `1.23 MB`. */
export function shown(bytes: number): string {
  let unit = 0
  let amount = bytes
  // A value that would be rounded up to 1000 gets the next unit.
  for (; amount >= 999.5 && unit < UNITS.length - 1; unit++) amount /= 1000
  const digits = unit === 0 || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2
  return `${amount.toFixed(digits)} ${UNITS[unit]}`
}

/** @param rows the first one has the column names @returns lines with aligned columns */
export function tableText(rows: readonly (readonly string[])[]): string {
  const widths: number[] = []
  for (const row of rows) {
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length)
  }
  const lines = rows.map((row) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  '))
  return lines.map((line) => `${line.trimEnd()}\n`).join('')
}
