import { randomBytes } from 'node:crypto'
import { rmSync, type StatsFs, statfsSync } from 'node:fs'
import { open, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'

/** Sizes of a disk, in bytes. */
export interface DiskSize {
  /** The space available to this account: some systems reserve a part for root. */
  readonly free: number
  readonly total: number
  /** The kind of its file system, if a sync may not make what was written durable there, or locks may not work. */
  readonly unsafe?: string
}

/** The size of the disk that a folder is on. @throws the file system's error */
export async function diskSize(folder: string): Promise<DiskSize> {
  return sizeOf(await statfs(folder))
}

/**
 * As {@link diskSize}, synchronously, for the rare moment when nothing else can continue.
 * @throws the file system's error
 */
export function diskSizeNow(folder: string): DiskSize {
  return sizeOf(statfsSync(folder))
}

/** statfs(2): in memory, or of another machine. */
const UNSAFE: ReadonlyMap<number, string> = new Map([
  [0x01021994, 'tmpfs'],
  [0x858458f6, 'ramfs'],
  [0x6969, 'NFS'],
  [0xff534d42, 'SMB'],
  [0xfe534d42, 'SMB'],
  [0x01021997, '9p'],
])

function sizeOf({ bavail, blocks, bsize, type }: StatsFs): DiskSize {
  const unsafe = UNSAFE.get(type)
  return { free: bavail * bsize, total: blocks * bsize, ...(unsafe !== undefined && { unsafe }) }
}

/**
 * The size of the reserved space, in bytes: a file that is removed when the disk is completely full, so that deletions,
 * checkpoints and compaction have space to continue. Enough for SQLite's longest log before a checkpoint (1,000 pages).
 */
export const RESERVED_BYTES = 8 * 1024 * 1024

const STEP = 1024 * 1024
/** The unit of `blocks`, in bytes, whatever the file system's block size: stat(2). */
const BLOCK = 512

function reservedPath(dataDir: string): string {
  return join(dataDir, 'ballast')
}

/** @returns whether the file exists with all of its blocks */
export async function hasReservedSpace(dataDir: string): Promise<boolean> {
  const { size, blocks } = await stat(reservedPath(dataDir)).catch(() => ({ size: 0, blocks: 0 }))
  return size === RESERVED_BYTES && blocks * BLOCK >= RESERVED_BYTES
}

/**
 * Makes the file. It is not synced: after a power cut its size shows whether it must be made again.
 * @throws the file system's error, after removing the incomplete file
 */
export async function reserveSpace(dataDir: string): Promise<void> {
  const path = reservedPath(dataDir)
  // Random bytes, since a compressing file system would reserve no space for others.
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

/** Removes the file, synchronously. Never throws. */
export function releaseReservedSpace(dataDir: string): void {
  try {
    rmSync(reservedPath(dataDir), { force: true })
  } catch {
    // The write that needs the space reports its own error.
  }
}
