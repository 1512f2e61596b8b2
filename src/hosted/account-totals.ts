/**
 * What an account's databases have together: one record for each account, changed in the same transaction as whatever it
 * counts. So it is exact, also when several nodes change it, and nothing adds up an account's databases.
 */
import { jsonObjectIn } from '../core/json.ts'
import { accountKey, type RecordWrite } from '../storage/records.ts'

/** The key is the account's name. */
export const TOTALS = 'usage_account'
/** Finds the accounts with the most bytes; the keys are those of {@link rankKey}. */
export const RANKS = 'usage_rank'
/** The size of a database; the key is its name. */
export const SIZES = 'usage'

export interface Size {
  /** `sizes.active`, and the files of its indexes. */
  readonly bytes: number
  /** Live documents. */
  readonly documents: number
  readonly indexes: number
}

export const NOTHING: Size = { bytes: 0, documents: 0, indexes: 0 }

/** The databases of an account, also those in the making, and their sizes together. */
export interface Totals extends Size {
  readonly databases: number
  /** How often they were changed, so that no two changes leave the same record. */
  readonly changes: number
}

const NO_DATABASES: Totals = { databases: 0, ...NOTHING, changes: 0 }

/** @returns the sums of each member */
export function sumOfSizes(a: Size, b: Size): Size {
  return { bytes: a.bytes + b.bytes, documents: a.documents + b.documents, indexes: a.indexes + b.indexes }
}

/** @param text of a record; null, or damaged: the database was not measured yet */
export function readSize(text: string | null): Size {
  const read = jsonObjectIn(text)
  if (read === null) return NOTHING
  const { bytes, documents, indexes } = read
  return { bytes: countOf(bytes), documents: countOf(documents), indexes: countOf(indexes) }
}

/** @param text of a record; null, or damaged: the account never owned a database */
export function readTotals(text: string | null): Totals {
  const read = jsonObjectIn(text)
  if (read === null) return NO_DATABASES
  return { databases: countOf(read.databases), ...readSize(text), changes: countOf(read.changes) }
}

function countOf(value: unknown): number {
  return typeof value === 'number' ? value : 0
}

/** What is added to an account's totals; negative where something goes. */
export interface TotalsChange {
  readonly databases: number
  readonly before: Size
  readonly after: Size
}

/**
 * @param text of the record as it is now
 * @returns the writes that change an account's totals, if nobody else changes them meanwhile
 */
export function totalsWrites(account: string, text: string | null, change: TotalsChange): RecordWrite[] {
  const old = readTotals(text)
  const { before, after } = change
  const totals: Totals = {
    databases: Math.max(0, old.databases + change.databases),
    bytes: Math.max(0, old.bytes + after.bytes - before.bytes),
    documents: Math.max(0, old.documents + after.documents - before.documents),
    indexes: Math.max(0, old.indexes + after.indexes - before.indexes),
    changes: old.changes + 1,
  }
  return [
    { kind: TOTALS, key: account, value: JSON.stringify(totals), expected: text },
    ...rankWrites(account, text === null ? null : old, totals),
  ]
}

/** @returns the writes that remove an account's totals */
export function totalsRemoval(account: string, text: string): RecordWrite[] {
  return [
    { kind: TOTALS, key: account, value: null, expected: text },
    ...rankWrites(account, readTotals(text), null),
  ]
}

function rankWrites(account: string, before: Totals | null, after: Totals | null): RecordWrite[] {
  const [old, next] = [before, after].map((totals) => totals && rankKey(account, totals.bytes))
  if (old === next) return []
  return [
    ...(old == null ? [] : [{ kind: RANKS, key: old, value: null }]),
    ...(next == null ? [] : [{ kind: RANKS, key: next, value: account }]),
  ]
}

/** Above every number of digits times a hundred, with the first two digits added. */
const MAX_RANK = 9999

/**
 * The accounts with the most bytes come first. Only the number's length and its first two digits count, so that an account
 * rarely changes its place. The migration in storage/sqlite/record-keys.ts has the same rule.
 */
export function rankKey(account: string, bytes: number): string {
  const digits = String(bytes)
  const rank = MAX_RANK - digits.length * 100 - Number(digits.slice(0, 2))
  return `${rank}/${accountKey(account)}`
}
