/**
 * How far each device has read the feeds of its databases, and how many changes it lacks. A position is the end of the
 * latest answer of `_changes` that was sent whole. Checkpoints would be closer to what a device has stored, but only
 * PouchDB and CouchDB write them, and their bodies are not parsed on the HTTP thread. A device that was sent more than it
 * could store asks again from where it was, which puts its position back.
 */
import { PLAIN_CHANGES } from '../changes/rows.ts'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import type { Databases } from '../threads/databases.ts'

/** Databases of one device whose positions are kept: those that it read last. */
const MAX_DATABASES = 8

export interface DevicePosition {
  readonly database: string
  /** The sequence token after which the feed continues. */
  readonly token: string
  /** Milliseconds since 1970. */
  readonly time: number
}

/** @returns the latest position of each database in both lists, the latest first, for as many databases as are kept */
export function latestPositions(
  some: readonly DevicePosition[],
  others: readonly DevicePosition[],
): readonly DevicePosition[] {
  const latest = new Map<string, DevicePosition>()
  for (const position of [...some, ...others]) {
    const known = latest.get(position.database)
    if (known === undefined || known.time < position.time) latest.set(position.database, position)
  }
  return [...latest.values()].sort((a, b) => b.time - a.time).slice(0, MAX_DATABASES)
}

/** @returns the positions in a value that was stored; damaged ones are left out */
export function positionsOf(value: unknown): readonly DevicePosition[] {
  return Array.isArray(value) ? value.filter(isPosition).slice(0, MAX_DATABASES) : []
}

function isPosition(value: unknown): value is DevicePosition {
  const { database, token, time } = (value ?? {}) as Record<string, unknown>
  return typeof database === 'string' && typeof token === 'string' && typeof time === 'number'
}

/** A position as an account sees it. */
export interface DeviceLag {
  readonly database: string
  /** The number of changes after the position; null: not counted. */
  readonly behind: number | null
  /** Milliseconds since 1970. */
  readonly time: number
}

/** Databases that are asked for one answer, since a closed one must be opened. */
const MAX_ASKED = 32
/** Questions to the database threads at once. */
const AT_ONCE = 8

/**
 * Counts the changes after the positions of some devices. A count costs about 0.1 ms, and a few milliseconds when its
 * database must be opened. So at most 32 databases are asked, those of the first positions; others have no count.
 * @param user the caller; databases that the caller cannot read are left out, and so are deleted ones
 */
export async function lagsOf(
  databases: Pick<Databases, 'get'>,
  user: UserCtx,
  devices: readonly (readonly DevicePosition[])[],
): Promise<(readonly DeviceLag[])[]> {
  const counts = new Map<string, number | null | undefined>()
  const asked = new Set<string>()
  const questions: DevicePosition[] = []
  for (const position of devices.flat()) {
    const key = keyOf(position)
    if (counts.has(key)) continue
    counts.set(key, null)
    if (asked.size >= MAX_ASKED && !asked.has(position.database)) continue
    asked.add(position.database)
    questions.push(position)
  }
  const ask = async () => {
    for (let next = questions.shift(); next !== undefined; next = questions.shift())
      counts.set(keyOf(next), await countAfter(databases, user, next))
  }
  await Promise.all(Array.from({ length: AT_ONCE }, ask))
  return devices.map((positions) =>
    positions.flatMap((position) => {
      const behind = counts.get(keyOf(position))
      return behind === undefined ? [] : [{ database: position.database, behind, time: position.time }]
    }),
  )
}

function keyOf({ database, token }: DevicePosition): string {
  return `${database} ${token}`
}

/** @returns null if the database cannot be read now; undefined: for this caller it does not exist */
async function countAfter(
  databases: Pick<Databases, 'get'>,
  user: UserCtx,
  { database, token }: DevicePosition,
): Promise<number | null | undefined> {
  try {
    const options = { ...PLAIN_CHANGES, framing: 'json' } as const
    const { pending } = await (await databases.get(database)).changes(user, {
      options,
      since: token,
      limit: 0,
    })
    return pending
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    return [401, 403, 404].includes(error.status) ? undefined : null
  }
}
