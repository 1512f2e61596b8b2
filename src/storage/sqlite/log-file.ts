/** The file of a database's log, as far as SQLite leaves its durability to others. */
import { closeSync, fsyncSync, openSync, readSync, statSync, writeSync } from 'node:fs'

const STRETCH_BYTES = 1024 * 1024

/** Where SQLite keeps a file's log. */
export function logOf(path: string): string {
  return `${path}-wal`
}

/** @returns bytes of a file; 0 for one that is not there */
export function fileBytes(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}

/**
 * Makes what stands in a file durable even if an earlier sync of it has failed: the system then takes its pages for
 * written, so that syncing them again does nothing. Hence they are written again as they are. The caller keeps all
 * others from writing to the file meanwhile. Not for a file that SQLite locks, which a log is not: closing any of a
 * process's descriptors lets all its locks of the file go.
 * @throws the operating system's error
 */
export function rewriteInPlace(path: string): void {
  const file = openSync(path, 'r+')
  try {
    const bytes = Buffer.allocUnsafe(Math.min(STRETCH_BYTES, fileBytes(path)))
    for (let at = 0; ; ) {
      const read = readSync(file, bytes, 0, bytes.length, at)
      if (read === 0) break
      writeWhole(file, bytes.subarray(0, read), at)
      at += read
    }
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

function writeWhole(file: number, bytes: Uint8Array, from: number): void {
  for (let done = 0; done < bytes.length; ) {
    done += writeSync(file, bytes, done, bytes.length - done, from + done)
  }
}

/** Makes a file, or the names in a folder, durable. @throws the operating system's error */
export function syncPath(path: string): void {
  const descriptor = openSync(path, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
