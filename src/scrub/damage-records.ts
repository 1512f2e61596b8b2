/** What checks have found damaged, and since when: remembered in records, for all nodes and over restarts. */

import { isJsonObject, jsonObjectIn } from '../core/json.ts'
import type { PartOutcome } from '../healing/repairs.ts'
import { incarnationsIn } from '../metrics/alarms.ts'
import type { Damage, DamagedPart } from '../storage/damage.ts'
import { MAX_NAMED_PARTS } from '../storage/damage.ts'
import { readRecord, type ServerRecord } from '../storage/records.ts'
import type { Databases } from '../threads/databases.ts'

const KIND = 'damage'
/** Damaged databases that a list has at most. */
const MAX_LISTED = 100

export type RememberedPart = DamagedPart & {
  /** When a check first found it, in ms since 1970. */
  readonly since: number
  /** Where a good copy was when it was last checked, for people; null: in no place that the server can read. */
  readonly copy: string | null
}

/** The damage of a database. */
export interface RememberedDamage {
  readonly database: string
  /**
   * Which database of this name was checked. A restore, an adoption and a request to devices for what they have make another
   * one: only the next check shows whether it has the damage.
   */
  readonly incarnation: number
  /** When a check last found it, in ms since 1970. */
  readonly checkedAt: number
  readonly count: number
  /** The first parts, at most `MAX_NAMED_PARTS`. */
  readonly parts: readonly RememberedPart[]
}

interface Known {
  readonly damage: RememberedDamage
  /** The incarnation that the name has now; null: unknown at the moment. */
  readonly now: number | null
}

type RecordedDatabases = Pick<Databases, 'readRecords' | 'listRecords' | 'writeRecords' | 'has' | 'get'>

export class DamageRecords {
  readonly #databases: RecordedDatabases
  readonly #incarnationOf: (database: string) => Promise<number | null | undefined>

  constructor(databases: RecordedDatabases) {
    this.#databases = databases
    this.#incarnationOf = incarnationsIn(databases)
  }

  /**
   * Replaces what is remembered of a database by what a whole check of it has found.
   * @param damage null: the database is whole
   * @param now in ms since 1970
   * @param copies where copies of the parts are, as far as known
   * @returns the parts that were not damaged when it was last checked
   * @throws as `writeRecords`
   */
  async note(
    { name, incarnation }: { readonly name: string; readonly incarnation: number },
    damage: Damage | null,
    now: number,
    copies: readonly Pick<PartOutcome, 'part' | 'copy'>[],
  ): Promise<readonly DamagedPart[]> {
    const value = await readRecord(this.#databases, KIND, name)
    if (damage === null) {
      if (value !== null) await this.#databases.writeRecords([{ kind: KIND, key: name, value: null }])
      return []
    }
    const known = value === null ? null : damageIn({ kind: KIND, key: name, value })
    const sinceOf = new Map(
      (known?.parts ?? []).map(({ since, copy: _, ...part }) => [JSON.stringify(part), since]),
    )
    const copyOf = new Map(copies.map(({ part, copy }) => [JSON.stringify(part), copy]))
    const parts = damage.parts.map((part) => {
      const key = JSON.stringify(part)
      return { ...part, since: sinceOf.get(key) ?? now, copy: copyOf.get(key) ?? null }
    })
    const stored = { incarnation, checkedAt: now, count: damage.count, parts }
    await this.#databases.writeRecords([{ kind: KIND, key: name, value: JSON.stringify(stored) }])
    return damage.parts.filter((part) => !sinceOf.has(JSON.stringify(part)))
  }

  /**
   * The damaged databases that exist, in the order of their names, at most {@link MAX_LISTED}.
   * @throws as `listRecords`
   */
  async list(): Promise<readonly RememberedDamage[]> {
    return (await this.#known()).map(({ damage }) => damage)
  }

  /** Those of {@link list} that were replaced since they were checked. @throws as `listRecords` */
  async replaced(): Promise<readonly string[]> {
    const known = await this.#known()
    const isOther = ({ damage, now }: Known) => now !== null && now !== damage.incarnation
    return known.filter(isOther).map(({ damage }) => damage.database)
  }

  async #known(): Promise<readonly Known[]> {
    const records = await this.#databases.listRecords(KIND, {}, MAX_LISTED)
    const found = records.flatMap((record) => damageIn(record) ?? [])
    const now = await Promise.all(found.map(({ database }) => this.#incarnationOf(database)))
    return found.flatMap((damage, at) => {
      const incarnation = now[at]
      return incarnation === undefined ? [] : [{ damage, now: incarnation }]
    })
  }

  /** Removes the records of databases that were deleted. @throws as `writeRecords` */
  async removeOld(): Promise<void> {
    for (let after: string | undefined; ; ) {
      const range = after === undefined ? {} : { after }
      const records = await this.#databases.listRecords(KIND, range, MAX_LISTED)
      for (const record of records) {
        const isKnown = damageIn(record) !== null
        if (isKnown && (await this.#incarnationOf(record.key)) !== undefined) continue
        const removal = { kind: KIND, key: record.key, value: null, expected: record.value }
        await this.#databases.writeRecords([removal])
      }
      if (records.length < MAX_LISTED) return
      after = records.at(-1)?.key
    }
  }
}

/** @returns null for a record that this version does not understand */
function damageIn({ key, value }: ServerRecord): RememberedDamage | null {
  const read = jsonObjectIn(value)
  const { incarnation, checkedAt, count, parts } = read ?? {}
  if (![incarnation, checkedAt, count].every(Number.isSafeInteger) || !Array.isArray(parts)) return null
  const isPart = (part: unknown) => isJsonObject(part) && typeof part.kind === 'string'
  const known = (parts.slice(0, MAX_NAMED_PARTS).filter(isPart) as RememberedPart[]).map((part) => ({
    ...part,
    // A settee before this noted none.
    copy: part.copy ?? null,
  }))
  return {
    database: key,
    incarnation: incarnation as number,
    checkedAt: checkedAt as number,
    count: count as number,
    parts: known,
  }
}
