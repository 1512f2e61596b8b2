/** The storage contract for records: small texts that the server keeps beside its databases, by kind and key. */

/** The kind of the scrub's records, and the key of the one that tells an engine that its own file was found damaged. */
export const SCRUB_KIND = 'scrub'
export const SERVER_FAULT_KEY = 'server'

/** A record, such as a device token. */
export interface ServerRecord {
  readonly kind: string
  readonly key: string
  /** Any text; its owner chooses the format, usually JSON. */
  readonly value: string
}

/** The new value of a record; null removes it. */
export interface RecordWrite extends Omit<ServerRecord, 'value'> {
  readonly value: string | null
  /**
   * Write only if this is the value before the call; null: only if there is no record. So of two nodes that decide by
   * what they have read, one is told to read again.
   */
  readonly expected?: string | null
}

/** Selects records of a kind by their keys. */
export interface RecordRange {
  /** Only keys that begin with this text. */
  readonly prefix?: string
  /** Only keys above this one. */
  readonly after?: string
}

/**
 * The records of a server, for all nodes that share its store. Calls reject with the errors that engine.ts names for a disk
 * or a store.
 */
export interface Records {
  /** The values of these keys, in their order; null for a key without a record. */
  readRecords(kind: string, keys: readonly string[]): Promise<(string | null)[]>
  /** Records of a kind in the order of their keys' bytes, at most `limit`. */
  listRecords(kind: string, range: RecordRange, limit: number): Promise<ServerRecord[]>
  /**
   * Sets and removes records in this order, all of them or none; durable when resolved.
   * @returns false if a record was not as expected: then nothing has changed
   * @throws bad_request for a key that is too long for the engine: thousands of bytes
   */
  writeRecords(writes: readonly RecordWrite[]): Promise<boolean>
}

/**
 * A change of what all nodes share. Own changes are told before the call that made them resolves, those of other
 * openers within about a second.
 */
export type CatalogChange =
  | { readonly type: 'records'; readonly kind: string; readonly keys: readonly string[] }
  /** Databases that were created, deleted or replaced, or are found to have been before. */
  | { readonly type: 'databases'; readonly names: readonly string[] }
  /** Another opener has noted which databases were written to: there are further updates. Own notes are not told. */
  | { readonly type: 'updates' }
  /** Another opener has given the server another uuid. */
  | { readonly type: 'uuid'; readonly uuid: string }
  /** Changes may have been missed: whatever is remembered must be read again. */
  | { readonly type: 'any' }

/** Records whose changes can be followed. */
export interface WatchedRecords extends Records {
  /** Calls the listener after each change, until the returned function is called. */
  watchCatalog(listener: (change: CatalogChange) => void): () => void
}

/** The changes that a write of records makes, one for each kind. */
export function changesOf(writes: readonly RecordWrite[]): CatalogChange[] {
  const byKind = Map.groupBy(writes, ({ kind }) => kind)
  return [...byKind].map(([kind, some]) => ({ type: 'records', kind, keys: some.map(({ key }) => key) }))
}

/**
 * Kinds of records whose loss changes no answer for long, since they are made anew: a damaged one counts as missing. All
 * others are an error.
 */
const MADE_ANEW: ReadonlySet<string> = new Set([
  'claim',
  'damage',
  'growth',
  'lockout',
  'mark',
  SCRUB_KIND,
  'sign_up',
  'token_use',
])

/** Whether a damaged record of the kind counts as missing. */
export function isMadeAnew(kind: unknown): boolean {
  return typeof kind === 'string' && MADE_ANEW.has(kind)
}

/**
 * An account in a key: hexadecimal, so that it sorts as the name does, and no name contains the separator or is the
 * beginning of another.
 */
export function accountKey(account: string): string {
  return Buffer.from(account).toString('hex')
}

/** @param key made by {@link accountKey} @returns the account */
export function accountOfKey(key: string): string {
  return Buffer.from(key, 'hex').toString()
}

/** Records that one call reads. */
const PAGE = 500

/**
 * All records of a kind in the order of their keys, read page by page.
 * @throws as `listRecords`
 */
export async function* allRecords(
  records: Pick<Records, 'listRecords'>,
  kind: string,
  { prefix, after }: RecordRange = {},
): AsyncGenerator<ServerRecord> {
  for (let last = after; ; ) {
    const range = { ...(prefix !== undefined && { prefix }), ...(last !== undefined && { after: last }) }
    const page = await records.listRecords(kind, range, PAGE)
    yield* page
    if (page.length < PAGE) return
    last = page.at(-1)?.key
  }
}

/**
 * Reads one record.
 * @returns its value; null if there is none
 * @throws as `readRecords`
 */
export async function readRecord(
  records: Pick<Records, 'readRecords'>,
  kind: string,
  key: string,
): Promise<string | null> {
  const [value = null] = await records.readRecords(kind, [key])
  return value
}

/**
 * All records of a kind that has few.
 * @throws as `listRecords`
 */
export async function collectRecords(
  records: Pick<Records, 'listRecords'>,
  kind: string,
): Promise<ServerRecord[]> {
  const found: ServerRecord[] = []
  for await (const record of allRecords(records, kind)) found.push(record)
  return found
}

/** @returns the first text, by bytes, after all that begin with the prefix; null if there is none */
export function endOfPrefix(prefix: string): string | null {
  const points = Array.from(prefix, (char) => char.codePointAt(0) as number)
  while (points.at(-1) === 0x10ffff) points.pop()
  const last = points.pop()
  if (last === undefined) return null
  // Surrogates are not characters.
  return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
}
