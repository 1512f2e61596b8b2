/**
 * Stack traces that name the sources. The program runs from a bundle, whose source maps Node would read at each start and in
 * each thread, for 0.1 s of CPU time and 12 MB. Here a map is read when a trace is shown, and is not kept.
 */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { BoundedCache } from './cache.ts'
import { programFile } from './program-files.ts'

/** The part of a source map that is used; https://tc39.es/ecma426/. */
interface SourceMap {
  readonly sources: readonly string[]
  readonly mappings: string
}

/** All numbers count from 0. */
interface Place {
  readonly source: number
  readonly line: number
  readonly column: number
}

/** A position in a trace: of a file, a line and a column. */
const POSITION = /(file:\/\/[^\s()]+\.js):(\d+):(\d+)/g
/** The characters of all known positions together. */
const KNOWN_TEXT = 100_000

const known = new BoundedCache<string>(KNOWN_TEXT, (position, named) => position.length + named.length)

/**
 * @param trace the stack of an error, or a text with several
 * @param folder the program's files: other positions stay as they are
 * @returns the trace with the positions in the sources
 */
export function sourceTrace(trace: string, folder = programFile('').href): string {
  return trace.replaceAll(POSITION, (position, file: string, line: string, column: string) =>
    file.startsWith(folder)
      ? known.get(position, () => sourcePosition(file, Number(line), Number(column)) ?? position)
      : position,
  )
}

/** @returns null if the file has no map, or none that can be read */
function sourcePosition(file: string, line: number, column: number): string | null {
  try {
    const { sources, mappings }: SourceMap = JSON.parse(readFileSync(fileURLToPath(`${file}.map`), 'utf8'))
    const place = placeIn(mappings, line - 1, column - 1)
    const source = place === null ? undefined : sources[place.source]
    if (place === null || source === undefined) return null
    return `${new URL(source, file).href}:${place.line + 1}:${place.column + 1}`
  } catch {
    return null
  }
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
const VALUES = new Map([...DIGITS].map((digit, value) => [digit, value]))
/** In a digit: whether others follow. */
const CONTINUES = 32

/**
 * Finds the source of a position. A map has a group for each line, after `;`, with a segment for each position, after `,`.
 * A segment is a list of differences to the one before it: of the column, and of the source, its line and its column.
 */
function placeIn(mappings: string, line: number, column: number): Place | null {
  const sums = [0, 0, 0, 0, 0]
  let [row, field, value, shift] = [0, 0, 0, 0]
  let found: Place | null = null
  for (const char of mappings) {
    const digit = VALUES.get(char)
    if (digit !== undefined) {
      value += (digit & (CONTINUES - 1)) << shift
      shift += 5
      if ((digit & CONTINUES) !== 0) continue
      sums[field] = sums[field]! + (value & 1 ? -(value >> 1) : value >> 1)
      field += 1
      value = 0
      shift = 0
      continue
    }
    if (row === line && field >= 4 && sums[0]! <= column) found = placeOf(sums)
    field = 0
    if (char !== ';') continue
    if (row === line) return found
    row += 1
    sums[0] = 0
  }
  return row === line && field >= 4 && sums[0]! <= column ? placeOf(sums) : found
}

function placeOf([, source = 0, line = 0, column = 0]: readonly number[]): Place {
  return { source, line, column }
}
