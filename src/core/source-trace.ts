/**
 * Stack traces that name the sources. The program runs from a bundle, whose source maps Node would read at each start and in
 * each thread, for 0.1 s of CPU time and 12 MB. Here a map is read when a trace is shown, and is not kept.
 */
import { readFileSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { fileURLToPath } from 'node:url'
import { BoundedCache } from './cache.ts'
import { programFile } from './program-files.ts'

/**
 * A position in a trace: of a file, a line and a column. A message may repeat text of a client, so no part of a text is matched
 * from two starts: a path has no colon, and each start has one.
 */
const POSITION = /(file:\/\/[^\s():]+\.js):(\d+):(\d+)/g
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
    const map = new SourceMap(JSON.parse(readFileSync(fileURLToPath(`${file}.map`), 'utf8')))
    const place = map.findEntry(line - 1, column - 1)
    if (!('originalSource' in place)) return null
    return `${new URL(place.originalSource, file).href}:${place.originalLine + 1}:${place.originalColumn + 1}`
  } catch {
    return null
  }
}
