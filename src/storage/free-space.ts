import { type StatsFs, statfsSync } from 'node:fs'
import { statfs } from 'node:fs/promises'

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
