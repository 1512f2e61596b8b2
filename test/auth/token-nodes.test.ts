/** Device tokens of several nodes over the same records: what one did, the others respect, however they overtake each other. */
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { Account } from '../../src/auth/accounts.ts'
import { tokensWithoutServer } from '../../src/auth/token-maker.ts'
import {
  ACCOUNT_KIND,
  OWNER_KIND,
  recordsOfToken,
  TOKEN_KIND,
  TOTAL_KIND,
  tokenOfRecord,
  UNUSED,
  USE_KIND,
} from '../../src/auth/token-record.ts'
import type { Tokens, TokensOptions } from '../../src/auth/tokens.ts'
import {
  accountKey,
  type RecordRange,
  type RecordWrite,
  type ServerRecord,
} from '../../src/storage/records.ts'
import { tokensOver } from '../helpers/tokens.ts'
import { until } from '../helpers/until.ts'
import { MemoryRecords, SharedRecords } from '../storage/memory/records.ts'

const LIMITS = { total: 6, perAccount: 3, nameLength: 50 }

/** Reads take a while, so that others write meanwhile. */
class DistantRecords extends MemoryRecords {
  /** Runs once before the next write. */
  beforeWrite: () => Promise<unknown> = async () => undefined

  override async writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    const run = this.beforeWrite
    this.beforeWrite = async () => undefined
    await run()
    return super.writeRecords(writes)
  }

  override async readRecords(kind: string, keys: readonly string[]): Promise<(string | null)[]> {
    await turn()
    return super.readRecords(kind, keys)
  }

  override async listRecords(kind: string, range: RecordRange, limit: number): Promise<ServerRecord[]> {
    await turn()
    return super.listRecords(kind, range, limit)
  }
}

function nodesOver(t: Test, count: number, options: Partial<TokensOptions> = {}) {
  const shared = new SharedRecords()
  const accounts = new Map<string, Account>()
  for (const name of ['anna', 'bob', 'cy']) accounts.set(name, { name, roles: [], stored: null, salt: '' })
  const source = { find: async (name: string) => accounts.get(name) ?? null, onChange: () => () => undefined }
  const nodes = Array.from({ length: count }, () => {
    const changed: (string[] | 'all')[] = []
    const records = new DistantRecords(shared)
    const tokens = tokensOver(records, source, { limits: () => LIMITS, ...options })
    tokens.onChange((names) => changed.push(names === 'all' ? names : [...names]))
    t.teardown(() => tokens.close())
    return { tokens, records, changed }
  })
  return { shared, accounts, nodes, one: nodes[0]!, two: nodes[1]! }
}

const phone = { account: 'anna', name: 'phone', isAdmin: false }

t.test('a token that one node revokes is refused on the other, whose feeds are told', async (t) => {
  const { one, two } = nodesOver(t, 2)
  const { token, secret } = await one.tokens.make(phone)
  t.match(await two.tokens.check('anna', secret, ''), { id: token.id })
  t.notOk(
    two.tokens.check('anna', secret, '') instanceof Promise,
    'the second check is answered from the cache',
  )
  await sleep(5)
  t.strictSame(two.changed, [], 'a new token is not reported to listeners')
  await one.tokens.revoke(token.id)
  await until(async () => two.changed.length > 0)
  t.strictSame(two.changed, [['anna']])
  t.equal(await two.tokens.check('anna', secret, ''), null)
})

t.test(
  'of two nodes, one gets the name, the last place in the account, and the last one of all',
  async (t) => {
    const { one, two } = nodesOver(t, 2)
    const both = async (a: [string, string], b: [string, string]) => {
      const make = (tokens: Tokens, [account, name]: [string, string]) =>
        tokens.make({ account, name, isAdmin: false })
      const made = await Promise.allSettled([make(one.tokens, a), make(two.tokens, b)])
      return made.map((each) => (each.status === 'fulfilled' ? 'made' : each.reason.code)).sort()
    }
    t.strictSame(await both(['anna', 'a'], ['anna', 'a']), ['conflict', 'made'])
    t.strictSame(await both(['anna', 'b'], ['bob', 'b']), ['made', 'made'])
    t.strictSame(await both(['anna', 'c'], ['anna', 'd']), ['forbidden', 'made'])
    await one.tokens.make({ account: 'bob', name: 'c', isAdmin: false })
    t.strictSame(await both(['bob', 'd'], ['cy', 'd']), ['forbidden', 'made'])
  },
)

t.test(
  'what another node does before a write is seen, even if the number of tokens is the same again',
  async (t) => {
    const { one, two, shared } = nodesOver(t, 2)
    const bobs = await one.tokens.make({ ...phone, account: 'bob' })
    one.records.beforeWrite = async () => {
      await two.tokens.revoke(bobs.token.id)
      await two.tokens.make(phone)
    }
    await t.rejects(one.tokens.make(phone), { code: 'conflict' })
    const annas = (await two.tokens.list('anna', '', 9)).tokens
    t.equal(annas.length, 1)
    one.records.beforeWrite = async () => {
      await two.tokens.revoke(annas[0]!.id)
      await two.tokens.make({ ...phone, account: 'bob' })
    }
    t.equal(await one.tokens.revoke(annas[0]!.id), false)
    checkRecords([...shared.values.values()])
  },
)

t.test('of the uses that two nodes have noted the later ones count', async (t) => {
  const clock = { now: 1_760_000_000_000 }
  const { one, two, shared } = nodesOver(t, 2, { now: () => clock.now })
  const { token } = await one.tokens.make(phone)
  one.tokens.noteUse(token.id, 'first', '192.0.2.1')
  one.tokens.notePosition(token.id, 'notes', '1-a')
  one.tokens.notePosition(token.id, 'old', '1-a')
  clock.now += 10
  two.tokens.noteUse(token.id, 'second', '192.0.2.2')
  two.tokens.notePosition(token.id, 'notes', '2-a')
  await Promise.all([two.tokens.close(), one.tokens.close()])
  const { value } = [...shared.values.values()].find(({ kind }) => kind === USE_KIND)!
  const { lastUse, positions } = JSON.parse(value)
  t.match(lastUse, { client: 'second' })
  t.match(positions, [
    { database: 'notes', token: '2-a' },
    { database: 'old', token: '1-a' },
  ])
})

t.test('the node with the duty checks all accounts, and another one when it takes it over', async (t) => {
  const listeners = new Set<() => void>()
  const duty = {
    isHeld: false,
    onChange: (listener: () => void) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  const { one, accounts, shared } = nodesOver(t, 1, { duty })
  await tokensWithoutServer(one.records, () => LIMITS).maker.make('gone', 'phone')
  for (let n = 0; n < 5; n++) await sleep(1)
  t.ok(shared.values.size > 0)
  await one.tokens.make(phone)
  t.ok(accounts.has('anna'))
  duty.isHeld = true
  for (const listener of listeners) listener()
  await until(async () => (await one.tokens.list('gone', '', 1)).tokens.length === 0)
  t.equal((await one.tokens.list('anna', '', 1)).tokens.length, 1)
})

t.test('a token that is made while its account is deleted is revoked', async (t) => {
  const { one, two, accounts, shared } = nodesOver(t, 2)
  one.records.beforeWrite = async () => {
    accounts.delete('anna')
    await two.tokens.revokeAll('anna')
  }
  const { secret } = await one.tokens.make(phone)
  await until(async () => shared.values.size === 0)
  accounts.set('anna', { name: 'anna', roles: [], stored: null, salt: '' })
  t.equal(
    await one.tokens.check('anna', secret, ''),
    null,
    'a later account of the name does not accept the old token',
  )
})

// Whatever several nodes do at once, the records of the table agree.

type Step =
  | { readonly do: 'make'; readonly node: number; readonly account: string; readonly name: string }
  | { readonly do: 'revoke'; readonly node: number; readonly nth: number }
  | { readonly do: 'revoke all'; readonly node: number; readonly account: string }
  | { readonly do: 'use'; readonly node: number; readonly nth: number }

const node = fc.nat({ max: 2 })
const account = fc.constantFrom('anna', 'bob')
const nth = fc.nat({ max: 9 })
const STEPS = fc.array(
  fc.oneof<fc.Arbitrary<Step>[]>(
    fc.record({ do: fc.constant('make'), node, account, name: fc.constantFrom('a', 'b', 'c', 'd') }),
    fc.record({ do: fc.constant('revoke'), node, nth }),
    fc.record({ do: fc.constant('revoke all'), node, account }),
    fc.record({ do: fc.constant('use'), node, nth }),
  ),
  { minLength: 4, maxLength: 24 },
)

t.test('the records agree after whatever nodes did at once', async (t) => {
  await fc.assert(
    fc.asyncProperty(STEPS, fc.integer({ min: 1, max: 6 }), async (steps, atOnce) => {
      const shared = new SharedRecords()
      const source = {
        find: async (name: string) => ({ name, roles: [], stored: null, salt: '' }),
        onChange: () => () => undefined,
      }
      const nodes = [0, 1, 2].map(() =>
        tokensOver(new DistantRecords(shared), source, { limits: () => LIMITS, writeMs: 1 }),
      )
      const ids: string[] = []
      const gone = new Set<string>()
      const run = async (step: Step): Promise<void> => {
        const tokens = nodes[step.node]!
        if (step.do === 'make') ids.push((await tokens.make({ ...phone, ...step })).token.id)
        else if (step.do === 'revoke all') await tokens.revokeAll(step.account)
        else {
          const id = ids[step.nth] ?? 'none'
          if (step.do === 'use') tokens.noteUse(id, 'PouchDB', '::1')
          else if (await tokens.revoke(id)) gone.add(id)
        }
      }
      for (let at = 0; at < steps.length; at += atOnce) {
        const results = await Promise.allSettled(steps.slice(at, at + atOnce).map(run))
        for (const result of results) {
          if (result.status === 'rejected' && !['conflict', 'forbidden'].includes(result.reason.code))
            throw result.reason
        }
      }
      for (const tokens of nodes) await tokens.close()
      checkRecords([...shared.values.values()])
      for (const id of gone)
        if (shared.values.has(JSON.stringify([TOKEN_KIND, id]))) throw new Error('it is back')
    }),
    { numRuns: 150 },
  )
  t.pass()
})

function checkRecords(records: readonly ServerRecord[]): void {
  const of = (kind: string) => records.filter((record) => record.kind === kind)
  const tokens = of(TOKEN_KIND).map(({ key, value }) => tokenOfRecord(key, value)!)
  const wanted = new Set(
    tokens.flatMap((token) => recordsOfToken(token, UNUSED).map(({ kind, key }) => `${kind} ${key}`)),
  )
  const owners = new Set(tokens.map((token) => accountKey(token.account)))
  const others = records.filter(({ kind, key }) => !wanted.delete(`${kind} ${key}`))
  const strange = others.filter(({ kind }) => kind !== OWNER_KIND && kind !== TOTAL_KIND)
  const total = Number(of(TOTAL_KIND)[0]?.value ?? 0)
  const names = new Set(of(ACCOUNT_KIND).map(({ key, value }) => `${key.split('/')[0]} ${value}`))
  const counts = [...Map.groupBy(tokens, (token) => token.account).values()].map((own) => own.length)
  const perAccount = Math.max(0, ...counts)
  const problems = [
    ...(wanted.size > 0 ? [`missing: ${[...wanted]}`] : []),
    ...strange.map(({ kind, key }) => `too much: ${kind} ${key}`),
    ...(total === tokens.length ? [] : [`${total} instead of ${tokens.length} tokens`]),
    ...(names.size === tokens.length ? [] : ['a name is there twice']),
    ...(perAccount > LIMITS.perAccount || total > LIMITS.total ? ['too many tokens'] : []),
    ...[...owners].filter((key) => !of(OWNER_KIND).some((owner) => owner.key === key)),
  ]
  if (problems.length > 0) throw new Error(problems.join('; '))
}
