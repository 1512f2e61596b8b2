/**
 * What frees space on the disk of the data folder, with the bytes of each step (docs/operating.md, Full disks). Each step
 * is done by what does it anyway: the rule of backups, the sweeps of old files, and compaction.
 */
import { lstat, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Config } from '../config/config.ts'
import { freeSpaceFloor } from '../config/settings.ts'
import { CURES, type CureName } from '../core/cure-names.ts'
import { CouchError } from '../core/errors.ts'
import { defaultFloor, SYSTEM_USER } from '../core/types.ts'
import type { DatabaseSize } from '../documents/database.ts'
import { diskSize } from '../storage/free-space.ts'
import { COPIES_FOLDER } from '../storage/storage-engine.ts'
import type { Databases } from '../threads/databases.ts'
import type { Backups, Keeping } from './backups.ts'
import { REPLACED_FOLDER, removeReplaced, removeUpgradeCopies } from './upgrade-copies.ts'

export interface Cure {
  readonly name: CureName
  /** How many backups, files or databases it is about. */
  readonly count: number
  /** About how many bytes it frees. */
  readonly bytes: number
}

/** The disk of the data folder, in bytes, and what frees space on it. */
export interface SpaceReport {
  readonly free: number
  readonly floor: number
  readonly total: number
  /** `settee/keep_days`. */
  readonly keepDays: number
  /** Only steps that free something. */
  readonly cures: readonly Cure[]
  /** Databases that could not be read, whose sizes are not in {@link cures}. */
  readonly unread: readonly string[]
}

export interface SpaceControl {
  /** @throws the file system's error */
  readSpace(request: object): Promise<SpaceReport>
  /**
   * Does one step.
   * @returns about how many bytes are free now that were not
   * @throws conflict while a backup is being made; bad_request for an unknown step; as the step
   */
  freeSpace(request: { readonly name: CureName }): Promise<{ readonly freed: number }>
}

export interface SpaceCuresOptions {
  readonly dataDir: string
  readonly config: Config
  readonly databases: Pick<Databases, 'allNames' | 'copies' | 'get' | 'tasks'>
  readonly backups: Pick<Backups, 'surplus' | 'removeSurplus'>
}

/** The backups that the steps keep. */
const KEEPINGS = { 'surplus-backups': 'rule', 'older-backups': 'least' } as const

/** Between two looks whether a compaction has ended, in ms. */
const LOOK_MS = 50

export class SpaceCures implements SpaceControl {
  readonly #options: SpaceCuresOptions

  constructor(options: SpaceCuresOptions) {
    this.#options = options
  }

  async readSpace(_request: object = {}): Promise<SpaceReport> {
    const { dataDir, config } = this.#options
    const { free, total } = await diskSize(dataDir)
    const floor = freeSpaceFloor(config) ?? defaultFloor(total)
    const files = await this.filesToRemove()
    const { sizes, unread } = await this.#sizes()
    const found = [...files, ...curesIn(sizes, this.#keepDays)]
    const cures = CURES.flatMap((name) => found.filter((cure) => cure.name === name && cure.bytes > 0))
    return { free, total, floor, keepDays: this.#keepDays, cures, unread }
  }

  get #keepDays(): number {
    return this.#options.config.integer('settee', 'keep_days')
  }

  /** The steps that need no look into databases. @throws the file system's error */
  async filesToRemove(): Promise<Cure[]> {
    const { dataDir } = this.#options
    const cures: Cure[] = []
    // The least that is kept is kept by the rule, too: the second step removes what the first one does, and more.
    let before = { count: 0, bytes: 0 }
    for (const [name, keeping] of Object.entries(KEEPINGS) as [CureName, Keeping][]) {
      const { paths } = await this.#options.backups.surplus(keeping)
      const all = { count: paths.length, bytes: await bytesFreed(dataDir, paths) }
      cures.push({ name, count: all.count - before.count, bytes: all.bytes - before.bytes })
      before = all
    }
    for (const [name, folder] of [
      ['upgrade-copies', COPIES_FOLDER],
      ['replaced', REPLACED_FOLDER],
    ] as const) {
      const path = join(dataDir, folder)
      cures.push({ name, count: (await filesBelow(path)).length, bytes: await bytesFreed(dataDir, [path]) })
    }
    return cures
  }

  /** What frees space, for the refusals of writes: without a look into databases, of which there may be thousands. */
  async advice(): Promise<string> {
    const cures = (await this.filesToRemove()).filter(({ bytes }) => bytes > 0)
    const files = cures.map((cure) => describeCure(cure, this.#keepDays))
    const deleted =
      this.#keepDays === 0
        ? 'deleted documents and old versions, by a compaction'
        : `deleted documents and old versions, which are kept for ${this.#keepDays} days (settee/keep_days)`
    return (
      '`settee size --free` shows what frees space, and does it: ' +
      `${[...files, deleted].join('; ')}. Or remove other files from the disk, or delete whole databases`
    )
  }

  async #sizes(): Promise<{ readonly sizes: DatabaseSize[]; readonly unread: string[] }> {
    const { databases } = this.#options
    const sizes: DatabaseSize[] = []
    const unread: string[] = []
    // The disk of a store is not this one.
    if (databases.copies === null) return { sizes, unread }
    for await (const name of databases.allNames()) {
      try {
        sizes.push(await (await databases.get(name)).size(SYSTEM_USER))
      } catch (error) {
        if (!(error instanceof CouchError && error.code === 'no_database')) unread.push(name)
      }
    }
    return { sizes, unread }
  }

  async freeSpace({ name }: { readonly name: CureName }): Promise<{ readonly freed: number }> {
    const { dataDir } = this.#options
    const before = await diskSize(dataDir)
    await this.#do(name)
    const after = await diskSize(dataDir)
    return { freed: Math.max(0, after.free - before.free) }
  }

  async #do(name: CureName): Promise<void> {
    const { dataDir, backups } = this.#options
    switch (name) {
      case 'surplus-backups':
      case 'older-backups':
        return backups.removeSurplus(KEEPINGS[name])
      case 'upgrade-copies':
        await removeUpgradeCopies(dataDir, Number.POSITIVE_INFINITY)
        return
      case 'replaced':
        return removeReplaced(dataDir, Number.POSITIVE_INFINITY)
      case 'compaction':
        return this.#compact()
      case 'versions':
        return this.#withoutVersions(() => this.#compact())
      default:
        throw new CouchError('bad_request', `There is no step ${name satisfies never}.`)
    }
  }

  /** A database that cannot be compacted keeps no other from it. */
  async #compact(): Promise<void> {
    const { databases } = this.#options
    if (databases.copies === null) throw new CouchError('no_copies')
    for await (const name of databases.allNames()) {
      try {
        await (await databases.get(name)).compact(SYSTEM_USER)
      } catch (error) {
        if (error instanceof CouchError) continue
        throw error
      }
      while (databases.tasks().some(({ database }) => database === name)) await delay(LOOK_MS)
    }
  }

  /** In memory alone: after a crash the old value is in force again. */
  async #withoutVersions(work: () => Promise<void>): Promise<void> {
    const { config } = this.#options
    const before = config.get('settee', 'keep_days') ?? String(this.#keepDays)
    await config.set('settee', 'keep_days', '0', { persist: false })
    try {
      await work()
    } finally {
      if (this.#keepDays === 0) await config.set('settee', 'keep_days', before, { persist: false })
    }
  }
}

/** @returns a step in words, with its bytes */
export function describeCure({ name, count, bytes }: Cure, keepDays: number): string {
  const of = (one: string, several: string) => (count === 1 ? `1 ${one}` : `${count} ${several}`)
  const about = `${(bytes / 1e6).toFixed(1)} MB`
  switch (name) {
    case 'surplus-backups':
      return `${about} in ${of('backup', 'backups')} that the rule does not keep (settee/backup_keep_daily, backup_keep_weekly)`
    case 'compaction':
      return `${about} of unused space in ${of('database', 'databases')}`
    case 'upgrade-copies':
      return `${about} in ${of('file', 'files')} from before an upgrade, which the way back needs (before-upgrade/)`
    case 'replaced':
      return `${about} in ${of('file', 'files')} of databases that a restore replaced (replaced/)`
    case 'older-backups':
      return `${about} in ${of('older backup', 'older backups')}; the newest backup of each database stays`
    case 'versions':
      return (
        `${about} of deleted and overwritten versions in ${of('database', 'databases')}, with their attachments, ` +
        `which the time machine keeps for ${keepDays} days`
      )
  }
}

/** What a compaction frees with the settings in force, and what it frees beyond that if old versions are given up. */
function curesIn(sizes: readonly DatabaseSize[], keepDays: number): Cure[] {
  const sum = (bytesOf: (size: DatabaseSize) => number): Pick<Cure, 'count' | 'bytes'> => {
    const found = sizes.map(bytesOf).filter((bytes) => bytes > 0)
    return { count: found.length, bytes: found.reduce((all, bytes) => all + bytes, 0) }
  }
  const unused = ({ free, log }: DatabaseSize) => (free?.bytes ?? 0) + (log?.bytes ?? 0)
  const versions = ({ old, kept }: DatabaseSize) => old.bytes + kept.bytes
  if (keepDays === 0) return [{ name: 'compaction', ...sum((size) => unused(size) + versions(size)) }]
  return [
    { name: 'compaction', ...sum(unused) },
    { name: 'versions', ...sum(versions) },
  ]
}

/**
 * About how many bytes of the data folder's disk are free when these files and folders are gone. A file that has
 * further names elsewhere frees nothing.
 */
async function bytesFreed(dataDir: string, paths: readonly string[]): Promise<number> {
  const { dev } = await stat(dataDir)
  const files = new Map<number, { readonly bytes: number; readonly names: number; found: number }>()
  for (const path of paths) {
    for (const file of await filesBelow(path)) {
      const found = await lstat(file).catch(() => null)
      if (found === null || found.dev !== dev) continue
      const known = files.get(found.ino) ?? { bytes: found.blocks * 512, names: found.nlink, found: 0 }
      known.found += 1
      files.set(found.ino, known)
    }
  }
  return [...files.values()].reduce((sum, { bytes, names, found }) => sum + (found >= names ? bytes : 0), 0)
}

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return []
      throw error
    },
  )
  return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
}
