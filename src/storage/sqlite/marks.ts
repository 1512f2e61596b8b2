/**
 * How far databases were when last heard of, in server.sqlite: about a second behind them, and never ahead, so that a
 * file which is not that far any more was put back by hand.
 */
import type { NamedMark } from '../catalog.ts'
import type { Mark } from '../sequence.ts'
import type { Connection } from './connection.ts'
import { readRecords, writeRecords } from './records.ts'

const KIND = 'mark'

/** @returns marks by the databases' names */
export function readMarks(connection: Connection): ReadonlyMap<string, Mark> {
  return new Map(readRecords(connection, KIND).map(({ key, value }) => [key, JSON.parse(value) as Mark]))
}

/** Part of the caller's transaction. */
export function writeMarks(connection: Connection, marks: readonly NamedMark[]): void {
  const writes = marks.map(({ name, epoch, updateSeq }) => {
    return { kind: KIND, key: name, value: JSON.stringify({ epoch, updateSeq }) }
  })
  writeRecords(connection, writes)
}

/** Part of the caller's transaction. */
export function forgetMark(connection: Connection, name: string): void {
  writeRecords(connection, [{ kind: KIND, key: name, value: null }])
}
