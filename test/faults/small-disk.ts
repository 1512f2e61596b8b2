/** A disk of some megabytes: a tmpfs, which who is root may mount, and others in a namespace of their own. */
import { execFileSync } from 'node:child_process'
import { closeSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

export interface SmallDisk {
  readonly path: string
  /** Bytes. */
  free(): number
  /** Fills it with somebody else's file until so many bytes are free. */
  fill(leave: number): void
  /** That file is removed. */
  empty(): void
}

const IN_NAMESPACE = 'SMALL_DISK_IN_NAMESPACE'
const STEP = 4096

/**
 * Calls `tests` where disks can be mounted: here, or in this file run once more in a namespace where this account is
 * root. Where neither can be, one test says so, and is skipped.
 * @param file `import.meta.url` of the test
 */
export function withSmallDisks(t: Test, file: string, tests: () => void): void {
  if (can('mount')) {
    tests()
  } else if (process.env[IN_NAMESPACE] === undefined && can('unshare')) {
    const args = ['-rm', process.execPath, fileURLToPath(file)]
    t.spawn('unshare', args, { env: { ...process.env, [IN_NAMESPACE]: '1' } }, 'in a namespace')
  } else {
    t.test('small disks', { skip: 'neither mount nor unshare -rm is allowed here' }, () => undefined)
  }
}

function can(how: 'mount' | 'unshare'): boolean {
  const folder = execFileSync('mktemp', ['-d']).toString().trim()
  const mount = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder]
  const [command = '', ...args] = how === 'mount' ? mount : ['unshare', '-rm', ...mount]
  try {
    execFileSync(command, args, { stdio: 'ignore' })
    if (how === 'mount') execFileSync('umount', [folder])
    return true
  } catch {
    return false
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Mounts a disk; it is gone when the test ends. */
export async function smallDisk(t: Pick<Test, 'teardown'>, megabytes: number): Promise<SmallDisk> {
  const path = await mkdtemp(join(tmpdir(), 'settee-disk-'))
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', path])
  t.teardown(async () => {
    // Lazily: what still has a file open there goes on until it closes it.
    execFileSync('umount', ['-l', path])
    await rm(path, { recursive: true })
  })
  const filler = join(path, 'somebody-else')
  const free = () => {
    const { bavail, bsize } = statfsSync(path)
    return bavail * bsize
  }
  const fill = (leave: number) => {
    const file = openSync(filler, 'a')
    try {
      while (free() - leave >= STEP) {
        const bytes = Math.max(STEP, Math.min(2 ** 20, free() - leave))
        writeSync(file, Buffer.alloc(bytes - (bytes % STEP)))
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
    } finally {
      closeSync(file)
    }
  }
  return { path, free, fill, empty: () => rmSync(filler, { force: true }) }
}
