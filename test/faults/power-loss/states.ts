/** States that a disk may be in after a power cut, laid out as folders. */
import { access, constants, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Chance, DiskState } from './disk.ts'
import type { Random } from './random.ts'

/** Keeps by chance: how much, how torn and in what sectors is drawn once for the whole state. */
export function byChance(random: Random): Chance {
  const share = [0.1, 0.5, 0.9, 0.97][random.below(4)] as number
  const torn = [0, 0.3, 1][random.below(3)] as number
  return {
    keeps: () => random.next() < share,
    sectorBytes: random.below(2) === 0 ? 512 : 4096,
    tears: () => random.next() < torn,
    filler: random.below(2) === 0 ? 0 : 0xa5,
    pick: (states) => random.below(states),
  }
}

/** Lays a state out as a folder, which is emptied first. @param garbage into the memory of logs' indexes, if any */
export async function layOut(state: DiskState, folder: string, garbage?: Buffer): Promise<void> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true, mode: 0o700 })
  for (const [path, bytes] of state) {
    const target = join(folder, path)
    if (bytes === null) await mkdir(target, { mode: 0o700 })
    else await writeFile(target, bytes, { mode: 0o600 })
    if (garbage !== undefined && path.endsWith('.sqlite')) await writeFile(`${target}-shm`, garbage)
  }
}

/** A folder for states, which goes with the test: in memory where there is such a place, since nothing in it lasts. */
export async function stateFolder(t: Pick<Test, 'teardown'>): Promise<string> {
  const inMemory = await access('/dev/shm', constants.W_OK).then(
    () => '/dev/shm',
    () => tmpdir(),
  )
  const folder = await mkdtemp(join(inMemory, 'settee-states-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  return join(folder, 'data')
}
