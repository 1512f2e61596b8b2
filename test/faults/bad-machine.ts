/** A server process on a machine that fails in the ways of bad-machine.c. */
import { spawnSync } from 'node:child_process'
import { mkdirSync, openSync, readSync, writeSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { temporaryFolder } from '../helpers/server.ts'
import { type ServerProcess, type ServerProcessOptions, startServerProcess } from './server-process.ts'

const SOURCE = fileURLToPath(new URL('bad-machine.c', import.meta.url))

/** The members of bad-machine.c's struct, in its order. */
const MEMBERS = [
  'wrongReads',
  'failedReads',
  'writeError',
  'syncError',
  'openError',
  'readError',
  'clockDays',
  'syncMs',
  'wrong',
  'failed',
] as const

type Member = (typeof MEMBERS)[number]
type Faults = Partial<Record<Exclude<Member, 'wrong' | 'failed'>, number>>

export const { EROFS, EIO, ENOENT, EMFILE, EINVAL } = constants.errno

export interface BadMachine extends ServerProcess {
  /** From now on these faults happen, and no others. */
  fail(faults: Faults): void
  /** How many reads were wrong or failed so far. */
  told(): { readonly wrong: number; readonly failed: number }
}

/** @returns a server whose data folder is the disk that fails */
export async function startOnBadMachine(t: Test, options: ServerProcessOptions = {}): Promise<BadMachine> {
  const own = await temporaryFolder(t)
  const library = join(own, 'bad-machine.so')
  const compiler = process.env.CC ?? 'gcc'
  const args = ['-O2', '-shared', '-fPIC', '-o', library, SOURCE, '-ldl']
  const { status, stderr } = spawnSync(compiler, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`bad-machine.c cannot be compiled by ${compiler}: ${stderr}`)
  const path = join(own, 'control')
  await writeFile(path, Buffer.alloc(4 * MEMBERS.length))
  const control = openSync(path, 'r+')
  const dataDir = options.dataDir ?? join(own, 'data')
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  // io_uring would read and write past the library; libuv leaves it alone then.
  const env = { LD_PRELOAD: library, BAD_ROOT: dataDir, BAD_CONTROL: path, UV_USE_IO_URING: '0' }
  const server = await startServerProcess(t, { ...options, dataDir, env })
  const read = (member: Member) => {
    const bytes = Buffer.alloc(4)
    readSync(control, bytes, 0, 4, 4 * MEMBERS.indexOf(member))
    return bytes.readUInt32LE()
  }
  return {
    ...server,
    fail: (faults) => {
      const bytes = Buffer.alloc(4 * (MEMBERS.length - 2))
      for (const [member, value] of Object.entries(faults))
        bytes.writeInt32LE(value, 4 * MEMBERS.indexOf(member as Member))
      writeSync(control, bytes, 0, bytes.length, 0)
    },
    told: () => ({ wrong: read('wrong'), failed: read('failed') }),
  }
}
