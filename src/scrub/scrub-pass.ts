/** The pass of the scrub over all databases, whose progress is a record: a restart does not begin it anew. */
import { isJsonObject, jsonObjectIn } from '../core/json.ts'
import type { Damage } from '../storage/damage.ts'
import { type Records, readRecord, SCRUB_KIND, SERVER_FAULT_KEY } from '../storage/records.ts'
import type { CheckedUpTo } from '../threads/copies.ts'

const KIND = SCRUB_KIND
const KEY = 'pass'

/** Times in ms since 1970. */
export interface PassTimes {
  readonly begunAt: number
  readonly endedAt: number
}

/** A pass that has not ended. */
export interface OpenPass {
  readonly begunAt: number
  /** Databases that are checked. */
  readonly done: number
  /** The database that is next or under way; null: the first one. */
  readonly database: string | null
  /** null: the database is not begun. */
  readonly checked: CheckedUpTo | null
  /** What was found in the database so far. */
  readonly found: Damage | null
}

export interface PassRecord {
  /** The last pass that has read everything. */
  readonly last: PassTimes | null
  readonly open: OpenPass | null
}

/** @throws as `readRecords` */
export async function readPass(records: Pick<Records, 'readRecords'>): Promise<PassRecord> {
  const value = await readRecord(records, KIND, KEY)
  const read = value === null ? null : jsonObjectIn(value)
  return {
    last: isTimes(read?.last) ? read.last : null,
    open: isOpen(read?.open) ? read.open : null,
  }
}

/** @throws as `writeRecords` */
export async function writePass(records: Pick<Records, 'writeRecords'>, pass: PassRecord): Promise<void> {
  await records.writeRecords([{ kind: KIND, key: KEY, value: JSON.stringify(pass) }])
}

/**
 * Notes that the server's own data is damaged, so that the next start reads all of it, however large it is.
 * @throws as `writeRecords`
 */
export async function noteServerFault(
  records: Pick<Records, 'readRecords' | 'writeRecords'>,
  fault: string | null,
): Promise<void> {
  const before = await readRecord(records, KIND, SERVER_FAULT_KEY)
  if (fault !== before) await records.writeRecords([{ kind: KIND, key: SERVER_FAULT_KEY, value: fault }])
}

function isTimes(value: unknown): value is PassTimes {
  return isJsonObject(value) && [value.begunAt, value.endedAt].every(Number.isSafeInteger)
}

/** A pass of another form begins anew. */
function isOpen(value: unknown): value is OpenPass {
  if (!isJsonObject(value) || ![value.begunAt, value.done].every(Number.isSafeInteger)) return false
  const { database, checked, found } = value
  const isName = database === null || typeof database === 'string'
  return isName && (checked === null || isCheckedUpTo(checked)) && (found === null || isDamage(found))
}

function isCheckedUpTo(value: unknown): boolean {
  if (!isJsonObject(value) || !isJsonObject(value.position)) return false
  const { table, above } = value.position
  const isPlace = typeof above === 'string' || Number.isSafeInteger(above)
  return isPlace && [value.incarnation, table].every(Number.isSafeInteger)
}

function isDamage(value: unknown): boolean {
  return isJsonObject(value) && Number.isSafeInteger(value.count) && Array.isArray(value.parts)
}
