/** Keeps other users of the machine from files that settee wrote, also from those that were created with another umask. */
import { chmodSync, constants, lstatSync } from 'node:fs'

const OTHERS = 0o077

/**
 * Removes others' rights to a file or folder, if this account owns it. What cannot be changed, such as on a read-only
 * mount, stays as it is. At once, since a promise for each of 100,000 files would take 8 s.
 * @returns `opened` if others had rights, `foreign` for a link or what belongs to another account, null if there is nothing
 */
export function closeToOthers(path: string): 'opened' | 'closed' | 'foreign' | null {
  try {
    const { mode, uid } = lstatSync(path)
    const { S_IFMT, S_IFREG, S_IFDIR } = constants
    const isOwn = uid === process.getuid?.() && ((mode & S_IFMT) === S_IFREG || (mode & S_IFMT) === S_IFDIR)
    if (!isOwn) return 'foreign'
    return (mode & OTHERS) === 0 ? 'closed' : change(path, mode & 0o700)
  } catch {
    return null
  }
}

function change(path: string, mode: number): 'opened' | 'closed' {
  try {
    chmodSync(path, mode)
    return 'opened'
  } catch {
    return 'closed'
  }
}
