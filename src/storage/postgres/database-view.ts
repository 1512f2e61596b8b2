/** The view of a database: counters that each statement reads anew, and settings that are remembered by their version. */
import { CouchError } from '../../core/errors.ts'
import type { SecurityObject } from '../../core/types.ts'
import { agrees, rowChecksum } from '../checksum.ts'
import { type DamageReports, ONLY_ADMINS } from '../damage.ts'
import type { StoreView } from '../engine.ts'
import type { Epochs } from '../sequence.ts'
import type { Connections } from './connections.ts'
import { type StoredLeaves, storedLeaves } from './leaf-list.ts'

/** Of `database` as d, in the order of a {@link ViewRow}. Every statement that reads documents reads these as well. */
export const VIEW_COLUMNS = 'd.update_seq, d.doc_count, d.deleted_count, d.settings_version'

export type ViewRow = readonly [
  updateSeq: number,
  docCount: number,
  deletedCount: number,
  settingsVersion: number,
]

/** The part of a view that changes with its settingsVersion alone. */
export type DatabaseSettings = Omit<StoreView, 'updateSeq' | 'docCount' | 'deletedCount'>

/** Of `database`, in the order of a {@link SettingsRow}. */
export const SETTINGS_COLUMNS =
  'settings_version, design_version, revs_limit, purged_infos_limit, restored_at IS NOT NULL, epochs, security, ' +
  'security_checksum, damaged_leaves'

export type SettingsRow = readonly [
  settingsVersion: number,
  designVersion: number,
  revsLimit: number,
  purgedInfosLimit: number,
  wasRestored: boolean,
  epochs: string,
  security: string | null,
  securityChecksum: number | null,
  damagedLeaves: string | null,
]

const READ_SETTINGS = {
  name: 'read_settings',
  text: `SELECT ${SETTINGS_COLUMNS} FROM database WHERE db = $1 AND incarnation = $2`,
}

/** Settings that change while they are read, so often one after the other, mean that something is wrong. */
const MAX_TRIES = 20

/**
 * @param row of a database that exists
 * @param damage gets a damaged security object
 */
function settingsOf(row: SettingsRow, damage: DamageReports): DatabaseSettings {
  const [settingsVersion, designVersion, revsLimit, purgedInfosLimit, wasRestored, epochs] = row
  return {
    settingsVersion,
    designVersion,
    revsLimit,
    purgedInfosLimit,
    wasRestored,
    epochs: JSON.parse(epochs) as Epochs,
    security: securityOf(row[6], row[7], damage),
  }
}

/** Whether a security object is what was written. @param stored null if there is none */
export function isSoundSecurity(stored: string | null, checksum: number | null): boolean {
  return stored === null || agrees(checksum, rowChecksum(stored), true)
}

function securityOf(
  stored: string | null,
  checksum: number | null,
  damage: DamageReports,
): SecurityObject | null {
  if (stored === null) return null
  try {
    if (isSoundSecurity(stored, checksum)) return JSON.parse(stored) as SecurityObject
  } catch {
    // It has no checksum yet.
  }
  damage.damagedSecurity()
  return ONLY_ADMINS
}

/** The views of one open database. */
export class DatabaseViews {
  readonly #connections: Pick<Connections, 'read'>
  readonly key: readonly [db: number, incarnation: number]
  readonly #damage: DamageReports
  #settings: DatabaseSettings
  #damaged: StoredLeaves

  /**
   * @param row as it was read when it was opened
   * @param damage gets a damaged security object
   */
  constructor(
    connections: Pick<Connections, 'read'>,
    key: readonly [db: number, incarnation: number],
    row: SettingsRow,
    damage: DamageReports,
  ) {
    this.#damage = damage
    this.#connections = connections
    this.key = key
    this.#settings = settingsOf(row, damage)
    this.#damaged = storedLeaves(row[8])
  }

  /** The settings that were read last. */
  get settings(): DatabaseSettings {
    return this.#settings
  }

  /** The leaves that were known to be damaged when the settings were read last. */
  get damaged(): StoredLeaves {
    return this.#damaged
  }

  /** @returns null if the settings of this version must be read first: {@link refresh} */
  viewOf([updateSeq, docCount, deletedCount, settingsVersion]: ViewRow): StoreView | null {
    if (settingsVersion !== this.#settings.settingsVersion) return null
    return { ...this.#settings, updateSeq, docCount, deletedCount }
  }

  /**
   * Reads the settings.
   * @throws no_database if it was deleted or restored; as {@link Connections.read}
   */
  async refresh(): Promise<DatabaseSettings> {
    const [row] = await this.#connections.read<SettingsRow>({ ...READ_SETTINGS, values: this.key })
    if (row === undefined) throw new CouchError('no_database')
    this.#settings = settingsOf(row, this.#damage)
    if (row[8] !== this.#damaged.stored) this.#damaged = storedLeaves(row[8])
    return this.#settings
  }

  /**
   * Reads with one statement or one snapshot, again if the settings have changed since they were read.
   * @param read reads the database's row as well: null if there is none
   * @param use gets what was read and its view
   * @throws no_database if the database was deleted; what `read` and `use` throw
   */
  async reading<T, R>(
    read: () => Promise<{ readonly view: ViewRow | null; readonly rows: T }>,
    use: (rows: T, view: StoreView) => R,
  ): Promise<R> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const { view: row, rows } = await read()
      if (row === null) throw new CouchError('no_database')
      const view = this.viewOf(row)
      if (view !== null) return use(rows, view)
      await this.refresh()
    }
    throw new CouchError('store_unavailable')
  }
}
