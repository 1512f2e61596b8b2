/**
 * The records of owners, as pure functions. The record of a database names its owner; others find the databases of an
 * account, those that it deleted, and those on which work may be unfinished. All are changed together.
 */
import { isJsonObject } from '../core/json.ts'
import { accountKey, type RecordWrite } from '../storage/records.ts'
import { NOTHING, readSize, SIZES, type TotalsChange, totalsWrites } from './account-totals.ts'

/** The key is the database's name. */
export const OWNER = 'owner'
/** Databases of an account, `key/name`; the value is their state. */
export const OF_ACCOUNT = 'owner_account'
/** Deleted databases that are still in an account's `_db_updates`, `key/name`; the value is the time in ms since 1970. */
export const FORMER = 'owner_former'
/** Databases on which work may be unfinished; the key is their name. */
export const UNFINISHED = 'owner_unfinished'

/** `making`: not usable yet; `deleted`: still in the account's `_db_updates`, until the name is used again. */
type OwnedState = 'making' | 'owned' | 'deleted'

export interface Owned {
  readonly account: string
  readonly state: OwnedState
}

/** @param text of a record; null: there is none */
export function readOwned(text: string | null): Owned | null {
  if (text === null) return null
  const read: unknown = JSON.parse(text)
  if (!isJsonObject(read) || typeof read.account !== 'string') throw new Error('an owner record is damaged')
  const { account, state } = read
  return { account, state: state === 'making' || state === 'deleted' ? state : 'owned' }
}

/** @returns the text of a record that names an owner */
export function ownedText({ account, state }: Owned): string {
  return JSON.stringify({ account, ...(state !== 'owned' && { state }) })
}

/** The prefix of an account's keys in {@link OF_ACCOUNT} and {@link FORMER}. */
export function prefixOf(account: string): string {
  return `${accountKey(account)}/`
}

/** The records that a change of a database's owner depends on, as texts. */
export interface OwnershipRecords {
  readonly owner: string | null
  readonly size: string | null
  /** Of the accounts before and after. */
  readonly totals: ReadonlyMap<string, string | null>
  /** Names of the account's deleted databases that are forgotten for this one. */
  readonly dropped: readonly string[]
}

/** @returns the accounts whose totals the change touches */
export function changedAccounts(before: Owned | null, after: Owned | null): string[] {
  const [old, next] = [countedBy(before), countedBy(after)]
  return old === next ? [] : [old, next].filter((account) => account !== null)
}

/** The account in whose totals the database counts. */
export function countedBy(owned: Owned | null): string | null {
  return owned === null || owned.state === 'deleted' ? null : owned.account
}

/**
 * @param now ms since 1970
 * @returns the writes that change the owner of a database, if nobody else changes one of these records meanwhile
 */
export function ownershipWrites(
  database: string,
  after: Owned | null,
  records: OwnershipRecords,
  now: number,
): RecordWrite[] {
  const before = readOwned(records.owner)
  const value = after && ownedText(after)
  return [
    { kind: OWNER, key: database, value, expected: records.owner },
    ...(before === null ? [] : [indexWrite(database, before, null)]),
    ...(after === null
      ? []
      : [indexWrite(database, after, after.state === 'deleted' ? `${now}` : after.state)]),
    { kind: UNFINISHED, key: database, value: after?.state === 'making' ? '' : null },
    ...countWrites(database, before, after, records),
    ...records.dropped.flatMap((name) => forgottenWrites(name, after?.account ?? '')),
  ]
}

function indexWrite(database: string, { account, state }: Owned, value: string | null): RecordWrite {
  return { kind: state === 'deleted' ? FORMER : OF_ACCOUNT, key: prefixOf(account) + database, value }
}

/** A database counts in its owner's totals from the moment that it is being made. Its size goes with it. */
function countWrites(
  database: string,
  before: Owned | null,
  after: Owned | null,
  { size, totals }: OwnershipRecords,
): RecordWrite[] {
  if (changedAccounts(before, after).length === 0) return []
  const [old, next] = [countedBy(before), countedBy(after)]
  const change = (account: string, by: TotalsChange) => totalsWrites(account, totals.get(account) ?? null, by)
  return [
    { kind: SIZES, key: database, value: null, expected: size },
    ...(old === null ? [] : change(old, { databases: -1, before: readSize(size), after: NOTHING })),
    ...(next === null ? [] : change(next, { databases: 1, before: NOTHING, after: NOTHING })),
  ]
}

function forgottenWrites(name: string, account: string): RecordWrite[] {
  const expected = ownedText({ account, state: 'deleted' })
  return [
    { kind: OWNER, key: name, value: null, expected },
    { kind: FORMER, key: prefixOf(account) + name, value: null },
  ]
}
