/** The table `meta`: what the file of a database knows of itself, as named values with checksums. */
import { valueChecksum } from '../checksum.ts'
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'
import type { Readable } from './table-walk.ts'

export type MetaValue = string | number

/** The key of the time of the last restore, or since when the database is a copy, in ms since 1970. */
export const RESTORED_KEY = 'restored_at'
/** The key of `StoreView.settingsVersion`; absent before the first change. */
export const SETTINGS_VERSION_KEY = 'settings_version'

interface MetaRow {
  readonly key: unknown
  readonly value: unknown
  readonly checksum: number | null
}

/** The version of a database's schema since which values have checksums. */
export const SUMMED_META_VERSION = 11

const PUT_PLAIN = 'INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)'

/** Stores a value in a file of any version. Part of the caller's transaction. */
export function putMeta(file: Pick<Connection, 'prepare' | 'pragma'>, key: string, value: MetaValue): void {
  if ((file.pragma('user_version') as number) < SUMMED_META_VERSION) file.prepare(PUT_PLAIN).run(key, value)
  else file.prepare(PUT).run(key, value, valueChecksum(key, value))
}

const PUT =
  'INSERT INTO meta (key, value, checksum) VALUES (?, ?, ?) ' +
  'ON CONFLICT DO UPDATE SET value = excluded.value, checksum = excluded.checksum'

/** Notes the checksums of all values: what they say counts as what was written. */
export function sumMeta(connection: Pick<Connection, 'prepare'>): void {
  const rows = connection.prepare<{ key: string; value: MetaValue }>('SELECT key, value FROM meta').all()
  const put = connection.prepare(PUT)
  for (const { key, value } of rows) put.run(key, value, valueChecksum(key, value))
}

/** The values of a file. */
export interface MetaValues {
  /** What was written. */
  readonly sound: ReadonlyMap<string, MetaValue>
  /** The keys of the others, as they are in the file: a key may be damaged, too. */
  readonly damaged: readonly unknown[]
}

/** Reads all values of a file of version {@link SUMMED_META_VERSION} or later. @throws SqliteError */
export function readMeta(file: Readable): MetaValues {
  const sound = new Map<string, MetaValue>()
  const damaged: unknown[] = []
  for (const { key, value, checksum } of file
    .prepare<MetaRow>('SELECT key, value, checksum FROM meta')
    .all()) {
    const isTyped = typeof key === 'string' && (typeof value === 'string' || typeof value === 'number')
    if (isTyped && valueChecksum(key, value) === checksum) sound.set(key, value)
    else damaged.push(key)
  }
  return { sound, damaged }
}

/** The values of an open file. */
export class Meta {
  readonly #values: ReadonlyMap<string, MetaValue>
  readonly #put: Statement

  /** @param connection whose values are sound (counters-repair.ts) */
  constructor(connection: Connection) {
    this.#values = readMeta(connection).sound
    this.#put = connection.prepare(PUT)
  }

  /** A value as it was at the opening. */
  get(key: string): MetaValue | undefined {
    return this.#values.get(key)
  }

  /** As {@link get}, of a number. */
  number(key: string, absent = 0): number {
    return Number(this.#values.get(key) ?? absent)
  }

  has(key: string): boolean {
    return this.#values.has(key)
  }

  /** As {@link putMeta}. */
  put(key: string, value: MetaValue): void {
    this.#put.run(key, value, valueChecksum(key, value))
  }
}
