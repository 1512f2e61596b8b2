import { randomBytes } from 'node:crypto'
import { rmSync, type StatsFs, statfsSync } from 'node:fs'
import { open, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'

/** In bytes. */
export interface DiskSize {
  /** What this account may still write: some systems keep a part for others. */
  readonly free: number
  readonly total: number
}

/** Asks for the disk that a folder is on. @throws the file system's error */
export async function diskSize(folder: string): Promise<DiskSize> {
  return sizeOf(await statfs(folder))
}

/** The same at once, for the rare moment when nothing else can go on. @throws the file system's error */
export function diskSizeNow(folder: string): DiskSize {
  return sizeOf(statfsSync(folder))
}

function sizeOf({ bavail, blocks, bsize }: StatsFs): DiskSize {
  return { free: bavail * bsize, total: blocks * bsize }
}

// A file that holds nothing but room: given up when the disk is full to its end, so that deletions, checkpoints and
// compaction have some to go on with.

/** Room for a log as long as SQLite lets one grow before it brings it into its file (1,000 pages). */
export const RESERVED_BYTES = 8 * 1024 * 1024

const STEP = 1024 * 1024
/** What a file's blocks are counted in, whatever the file system's own are: stat(2). */
const BLOCK = 512

function reservedPath(dataDir: string): string {
  return join(dataDir, 'ballast')
}

/** @returns whether it is there, with all of its blocks */
export async function hasReservedSpace(dataDir: string): Promise<boolean> {
  const { size, blocks } = await stat(reservedPath(dataDir)).catch(() => ({ size: 0, blocks: 0 }))
  return size === RESERVED_BYTES && blocks * BLOCK >= RESERVED_BYTES
}

/**
 * Makes it. Nothing waits for the disk: what a power cut leaves of it is seen by its size, and made anew.
 * @throws the file system's error; then nothing is left of it
 */
export async function reserveSpace(dataDir: string): Promise<void> {
  const path = reservedPath(dataDir)
  // Random, since a file system that compresses would keep no room for anything else.
  const step = randomBytes(STEP)
  const file = await open(path, 'w', 0o600)
  try {
    for (let at = 0; at < RESERVED_BYTES; at += STEP) await file.writeFile(step)
    await file.close()
  } catch (error) {
    await file.close().catch(() => undefined)
    await rm(path, { force: true })
    throw error
  }
}

/** Gives the room back to the disk, at once. Never throws. */
export function releaseReservedSpace(dataDir: string): void {
  try {
    rmSync(reservedPath(dataDir), { force: true })
  } catch {
    // A file system that refuses even this: whoever needs the room hears of its own failure.
  }
}
