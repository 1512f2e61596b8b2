/** The device tokens of another server, copied page by page. */
import t, { type Test } from 'tap'
import type { TokenPage } from '../../src/auth/token-copies.ts'
import { hashOfSecret, newSecret, TOTAL_KIND, type UsedToken } from '../../src/auth/token-record.ts'
import { newUuid } from '../../src/core/ids.ts'
import { tokensOver } from '../helpers/tokens.ts'
import { MemoryRecords } from '../storage/memory/records.ts'

const TIME = 1_760_000_000_000
const ACCOUNTS = {
  find: async (name: string) => ({ name, roles: [], stored: null, salt: '' }),
  onChange: () => () => undefined,
}

function setUp(t: Test) {
  const records = new MemoryRecords()
  const tokens = tokensOver(records, ACCOUNTS, {
    limits: () => ({ total: 9999, perAccount: 9999, nameLength: 50 }),
  })
  t.teardown(() => tokens.close())
  const revoked: string[] = []
  tokens.onChange((names) => {
    if (names !== 'all') revoked.push(...names)
  })
  const all = async () => (await tokens.page('', 9999)).tokens
  return { records, tokens, revoked, all }
}

/** Tokens of another server. @param made ms after {@link TIME}, which orders them */
function token(made: number, account = `user${made % 5}`): UsedToken & { readonly secret: string } {
  const secret = newSecret()
  const created = TIME + made
  const own = { id: newUuid(created), account, name: `device ${made}`, isAdmin: false, created }
  return { ...own, hash: hashOfSecret(secret), lastUse: null, positions: [], secret }
}

const plain = (tokens: readonly (UsedToken & { secret?: string })[]) =>
  tokens.map(({ secret: _, ...rest }) => rest)

async function* pagesOf(tokens: readonly UsedToken[], size: number): AsyncGenerator<TokenPage> {
  for (let at = 0; at < tokens.length; at += size) {
    const page = plain(tokens.slice(at, at + size))
    yield { tokens: page, last: page.at(-1)!.id }
  }
}

t.test('tokens are added, kept, changed and removed, in ranges of both servers', async (t) => {
  const { records, tokens, revoked, all } = setUp(t)
  const own = await tokens.make({ account: 'gone', name: 'own', isAdmin: false })
  const first = Array.from({ length: 1300 }, (_, n) => token(n))
  await tokens.replaceAll(pagesOf(first, 500))
  t.strictSame(await all(), plain(first))
  t.ok(revoked.includes('gone'))
  t.equal(await tokens.check('gone', own.secret, ''), null)
  t.match(await tokens.check(first[700]!.account, first[700]!.secret, ''), { id: first[700]!.id })
  t.strictSame(records.all(TOTAL_KIND)[0]?.value, '1300')

  // Most of a range are gone, one is new, another was used.
  const used = { ...first[2]!, lastUse: { time: TIME, client: 'x', address: '::1' } }
  const second = [token(-5), first[0]!, used, ...first.slice(900), token(2000)]
  await tokens.replaceAll(pagesOf(second, 3))
  t.strictSame(await all(), plain(second))
  t.strictSame(records.all(TOTAL_KIND)[0]?.value, String(second.length))
  t.equal(await tokens.check(first[700]!.account, first[700]!.secret, ''), null)

  const writes: unknown[] = []
  records.watchCatalog((change) => writes.push(change))
  await tokens.replaceAll(pagesOf(second, 400))
  t.strictSame(writes, [], 'unchanged tokens are not written')

  await tokens.replaceAll(pagesOf([], 1))
  t.strictSame(await all(), [])
  t.strictSame(records.all(TOTAL_KIND), [])
})

t.test('positions stay, and what the page lacks at its end is removed', async (t) => {
  const { tokens, all } = setUp(t)
  const [one, two, three] = [token(1), token(2), token(3)] as const
  await tokens.replaceAll(pagesOf([one, two, three], 9))
  tokens.notePosition(one.id, 'notes', '1-a')
  const lastUse = { time: TIME, client: 'x', address: '::1' }
  async function* pages(): AsyncGenerator<TokenPage> {
    // The account of the second is not here yet.
    yield { tokens: [{ ...one, lastUse }], last: two.id }
    yield { tokens: [three], last: three.id }
  }
  await tokens.replaceAll(pages())
  t.match(await all(), [
    { id: one.id, lastUse, positions: [{ database: 'notes', token: '1-a' }] },
    { id: three.id },
  ])
})

t.test('a copy that fails on the way keeps what it did not reach', async (t) => {
  const { tokens, all } = setUp(t)
  const first = [token(1), token(2), token(3)]
  await tokens.replaceAll(pagesOf(first, 9))
  async function* pages(): AsyncGenerator<TokenPage> {
    yield { tokens: [], last: first[0]!.id }
    throw new Error('the connection was lost')
  }
  await t.rejects(tokens.replaceAll(pages()), { message: 'the connection was lost' })
  t.strictSame(await all(), plain(first.slice(1)))
})
