/** Conflicting versions of a note, which devices have written independently. */
import type { Doc, Pouch, PouchError, Saved } from '../pouch.ts'
import { type DeviceLabel, type Note, newId, noteOf } from './model.ts'

/** @returns all versions of a note, the one that is shown first; a single version means no conflict */
export async function versionsOf(db: Pick<Pouch, 'get'>, id: string): Promise<readonly Note[]> {
  const winner = noteOf(await db.get(id, { conflicts: true }))
  const others = await Promise.all(winner.conflicts.map((rev) => db.get(id, { rev })))
  return [winner, ...others.map(noteOf)]
}

/**
 * Resolves a conflict: one version stays unchanged, and the others are removed from all devices. A version that was edited
 * meanwhile is not removed: it is in conflict again.
 * @param versions all versions of the note
 * @param kept one of them
 * @throws when the others could not be removed
 */
export async function keep(
  db: Pick<Pouch, 'bulkDocs'>,
  versions: readonly Note[],
  kept: Note,
): Promise<void> {
  const others = versions.filter(({ rev }) => rev !== kept.rev)
  const answers = await db.bulkDocs(others.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true })))
  throwFirst(answers.filter((answer) => !('ok' in answer) && answer.status !== 409))
}

/**
 * Resolves a conflict by making each other version a separate note.
 * @throws when that failed; every version still exists then
 */
export async function keepAll(db: Pick<Pouch, 'bulkDocs'>, versions: readonly Note[]): Promise<void> {
  const [winner, ...others] = versions
  if (winner === undefined) return
  throwFirst((await db.bulkDocs(others.map(copyOf))).filter((answer) => !('ok' in answer)))
  await keep(db, versions, winner)
}

function copyOf({ title, body, bookId, tags, createdAt, updatedAt, device }: Note): Doc {
  const copy = {
    title: `${title} (other version)`,
    body,
    bookId,
    tags,
    createdAt,
    updatedAt,
    ...(device && { device }),
  }
  return { _id: newId('note'), ...copy }
}

function throwFirst([failure]: readonly (Saved | PouchError)[]): void {
  if (failure !== undefined) throw failure
}

/**
 * Who wrote each version: "this device", or the name of another one, with a part of its id if two have the same name.
 * @returns null for a version whose app did not sign it
 */
export function writersOf(
  versions: readonly Pick<Note, 'device'>[],
  here: DeviceLabel,
): readonly (string | null)[] {
  return versions.map(({ device }) => {
    if (device === null) return null
    if (device.id === here.id) return 'this device'
    const hasTwin = versions.some(
      (other) => other.device?.name === device.name && other.device.id !== device.id,
    )
    return hasTwin ? `${device.name} (${device.id.slice(0, 4)})` : device.name
  })
}

/** A line of a text, and whether the other text has it, too. */
export interface Line {
  readonly text: string
  readonly isCommon: boolean
}

/** Texts with more lines are not compared line by line: the cost is the product of both counts. */
const MOST_LINES = 2000

/** @returns the lines of both texts, each with a mark whether it is part of their longest common subsequence */
export function compareLines(one: string, other: string): readonly [readonly Line[], readonly Line[]] {
  const a = one.split('\n')
  const b = other.split('\n')
  if (a.length > MOST_LINES || b.length > MOST_LINES) return [plain(a), plain(b)]
  const lengths = commonLengths(a, b)
  const [left, right]: [Line[], Line[]] = [[], []]
  let [i, j] = [0, 0]
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      left.push({ text: a[i++] ?? '', isCommon: true })
      right.push({ text: b[j++] ?? '', isCommon: true })
    } else if (j >= b.length || (i < a.length && at(lengths, i + 1, j) >= at(lengths, i, j + 1))) {
      left.push({ text: a[i++] ?? '', isCommon: false })
    } else {
      right.push({ text: b[j++] ?? '', isCommon: false })
    }
  }
  return [left, right]
}

function plain(lines: readonly string[]): readonly Line[] {
  return lines.map((text) => ({ text, isCommon: true }))
}

/** For each pair of positions, the length of the longest common subsequence of the lines that follow. */
function commonLengths(a: readonly string[], b: readonly string[]): readonly Uint16Array[] {
  const rows = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1))
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const row = rows[i] as Uint16Array
      row[j] = a[i] === b[j] ? at(rows, i + 1, j + 1) + 1 : Math.max(at(rows, i + 1, j), at(rows, i, j + 1))
    }
  }
  return rows
}

function at(rows: readonly Uint16Array[], i: number, j: number): number {
  return rows[i]?.[j] ?? 0
}
