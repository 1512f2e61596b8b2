/** The room that is left on the disk of the data folder (docs/operating.md, Full disks). */
import { CouchError } from './errors.ts'
import type { UserCtx } from './types.ts'

/** In bytes. */
export interface Space {
  readonly free: number
  /** So much is kept for what goes on when nothing else does: deletions, checkpoints of clients, compaction. */
  readonly floor: number
}

/** Where nobody looks after the disk. */
export const AMPLE_SPACE: Space = { free: Infinity, floor: 0 }

/** The floor where the configuration has none: bytes, and a part of the disk. */
const LEAST_FLOOR = 64 * 1024 * 1024
const FLOOR_PART = 0.02

/** @returns how much of a disk is kept where nothing is configured, in bytes: the larger of 64 MB and 2 % of it */
export function defaultFloor(total: number): number {
  return Math.max(LEAST_FLOOR, Math.floor(total * FLOOR_PART))
}

/** Whether what would grow is to be refused. */
export function isShort({ free, floor }: Space): boolean {
  return free < floor
}

/**
 * @param user who is refused: server admins alone are told how much is free, and what to do
 * @returns what whatever would grow is refused with; null while there is room
 */
export function shortage(space: Space, user?: Pick<UserCtx, 'roles'>): CouchError | null {
  if (!isShort(space)) return null
  const figures =
    `: ${megabytes(space.free)} MB are free, and the last ${megabytes(space.floor)} MB ` +
    '(settee/free_space_floor) are kept'
  const cure = ': free space on the disk, or delete documents and compact'
  const isAdmin = user?.roles.includes('_admin') === true
  return new CouchError(
    'insufficient_storage',
    `The server's disk is full${isAdmin ? figures : ''}. Only deletions are taken until there is room again` +
      `${isAdmin ? cure : ''}. What was refused is not stored; send it again then.`,
  )
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(1)
}
