import { mkdir, readdir, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { removeUpgradeCopies, startUpgradeCopyCleanup } from '../../src/backup/upgrade-copies.ts'
import { temporaryFolder } from '../helpers/server.ts'

const DAY_MS = 86_400_000

async function copy(dataDir: string, schema: string, name: string, days: number): Promise<void> {
  const folder = join(dataDir, 'before-upgrade', schema)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, name), 'x')
  const made = new Date(Date.now() - days * DAY_MS)
  await utimes(join(folder, name), made, made)
}

t.test('copies go by their age, and empty folders with them', async (t) => {
  const dataDir = await temporaryFolder(t)
  t.equal(await removeUpgradeCopies(dataDir, Date.now()), 0, 'there need be none')
  await copy(dataDir, 'databases-3', 'old.sqlite', 31)
  await copy(dataDir, 'databases-4', 'old.sqlite', 31)
  await copy(dataDir, 'databases-4', 'new.sqlite', 29)
  t.equal(await removeUpgradeCopies(dataDir, Date.now() - 30 * DAY_MS), 2)
  t.same(await readdir(join(dataDir, 'before-upgrade')), ['databases-4'])
  t.same(await readdir(join(dataDir, 'before-upgrade', 'databases-4')), ['new.sqlite'])
})

t.test('a server looks when it starts, and says what went', async (t) => {
  const dataDir = await temporaryFolder(t)
  await copy(dataDir, 'server-2', 'server.sqlite', 8)
  const said: unknown[] = []
  const log = (...words: unknown[]) => void said.push(words)
  const logger = { info: log, warn: log } as never
  const end = startUpgradeCopyCleanup({ dataDir, config: { integer: () => 7 }, logger })
  await end()
  t.match(said, [[{ count: 1 }, /^removed copies/]])
  t.same(await readdir(join(dataDir, 'before-upgrade')), [])
})
