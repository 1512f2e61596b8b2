/** Copies the device tokens of another server, of which this one is a standby. */
import { isDeepStrictEqual } from 'node:util'
import { accountKey, type Records, type RecordWrite, type ServerRecord } from '../storage/records.ts'
import type { StoredTokens, TokenChange } from './stored-tokens.ts'
import {
  OWNER_KIND,
  recordsOfToken,
  removalsOfToken,
  TOKEN_KIND,
  tokenOfRecord,
  USE_KIND,
  type UsedToken,
  usesOfValue,
  valueOfUses,
} from './token-record.ts'

/** Tokens of this server that are compared at once. */
const PAGE = 500

/** Tokens of the other server, in the order of their ids. */
export interface TokenPage {
  readonly tokens: readonly UsedToken[]
  /** The last id of the other server's page, which may belong to a token that is not copied. */
  readonly last: string
}

type Stored = Pick<Records, 'readRecords' | 'listRecords'>

/** Accounts whose tokens were removed, and the last id that was compared; null: the range is done. */
interface Compared {
  readonly accounts: ReadonlySet<string>
  readonly last: string | null
}

/**
 * Makes the tokens of another server the only ones, page by page; durable when resolved. Positions stay.
 * @param pages in the order of the ids
 * @param onRevoked called with the accounts of tokens that are durably gone
 * @throws as `writeRecords`, and what `pages` throws; what was copied until then stays
 */
export async function copyTokens(
  records: Stored,
  stored: Pick<StoredTokens, 'change'>,
  pages: AsyncIterable<TokenPage>,
  onRevoked: (accounts: ReadonlySet<string>) => void,
): Promise<void> {
  const copyRange = async (after: string, upTo: string | null, tokens: readonly UsedToken[]) => {
    for (let from: string | null = after; from !== null; ) {
      const start: string = from
      const { accounts, last } = await stored.change('', () => compare(records, start, upTo, tokens))
      if (accounts.size > 0) onRevoked(accounts)
      from = last
    }
  }
  let after = ''
  for await (const { tokens, last } of pages) {
    if (last <= after) continue
    await copyRange(after, last, tokens)
    after = last
  }
  await copyRange(after, null, [])
}

async function compare(
  records: Stored,
  after: string,
  upTo: string | null,
  tokens: readonly UsedToken[],
): Promise<TokenChange<Compared>> {
  const found = await records.listRecords(TOKEN_KIND, { after }, PAGE)
  const here = found.filter(({ key }) => upTo === null || key <= upTo)
  const last = found.length < PAGE || here.length < found.length ? null : (here.at(-1)?.key ?? null)
  const wanted = tokens.filter(({ id }) => id > after && (last === null || id <= last))
  const { writes, added, accounts } = await replacement(records, here, wanted)
  return { writes, added, result: { accounts, last } }
}

async function replacement(records: Stored, here: readonly ServerRecord[], wanted: readonly UsedToken[]) {
  const usesHere = await records.readRecords(
    USE_KIND,
    wanted.map(({ id }) => id),
  )
  const kept = new Set<string>()
  const writes: RecordWrite[] = []
  const byId = new Map(here.map((record) => [record.key, record]))
  const owners = new Map<string, string>()
  for (const [at, { lastUse, positions: _, ...token }] of wanted.entries()) {
    const { id, account } = token
    const uses = usesOfValue(usesHere[at] ?? '{}')
    const old = byId.get(id)
    if (old !== undefined && isDeepStrictEqual(tokenOfRecord(id, old.value), token)) {
      kept.add(id)
      if (isDeepStrictEqual(uses.lastUse, lastUse)) continue
      writes.push({ kind: USE_KIND, key: id, value: valueOfUses({ ...uses, lastUse }) })
    } else {
      writes.push(...recordsOfToken(token, { ...uses, lastUse }))
      owners.set(accountKey(account), id)
    }
  }
  const removed = here.filter(({ key }) => !kept.has(key))
  const accounts = new Set(removed.map(({ key, value }) => tokenOfRecord(key, value)?.account ?? ''))
  const removals = removed.flatMap(({ key, value }) =>
    removalsOfToken(key, tokenOfRecord(key, value)?.account ?? '', value),
  )
  const changes = [...owners].map(([key, value]) => ({ kind: OWNER_KIND, key, value }))
  const added = wanted.length - kept.size - removed.length
  return { writes: [...removals, ...writes, ...changes], added, accounts }
}
