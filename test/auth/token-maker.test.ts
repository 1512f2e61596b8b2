/** Device tokens by the operator's hand: in memory and on the disk they come to the same. */
import t from 'tap'
import { runningTokenMaker, storedTokenMaker, type TokenMaker } from '../../src/auth/token-maker.ts'
import { looksLikeSecret } from '../../src/auth/token-record.ts'
import type { TokenRecords } from '../../src/auth/tokens.ts'
import type { ServerRecord } from '../../src/storage/catalog.ts'
import { tokensOver } from '../helpers/tokens.ts'

const LIMITS = { total: 4, perAccount: 3, nameLength: 10 }
const ACCOUNTS = {
  find: async (name: string) => ({ name, roles: [], stored: null, salt: '' }),
  onChange: () => () => undefined,
}

function memoryRecords(): TokenRecords {
  const kept = new Map<string, ServerRecord>()
  return {
    readRecords: async (kind) => [...kept.values()].filter((record) => record.kind === kind),
    writeRecords: async (writes) => {
      for (const { kind, key, value } of writes) {
        if (value === null) kept.delete(key)
        else kept.set(key, { kind, key, value })
      }
    },
  }
}

const MAKERS: Readonly<Record<string, (records: TokenRecords) => Promise<TokenMaker>>> = {
  running: async (records) =>
    runningTokenMaker(await tokensOver(records, ACCOUNTS, { limits: () => LIMITS })),
  stored: async (records) => storedTokenMaker(records, () => LIMITS),
}

for (const [name, make] of Object.entries(MAKERS)) {
  t.test(`${name}: made, named, refused at limits, revoked`, async (t) => {
    const records = memoryRecords()
    const maker = await make(records)
    const secret = await maker.make('anna', 'phone')
    t.ok(looksLikeSecret(secret))
    t.notMatch(JSON.stringify(await records.readRecords('token')), secret)
    await t.rejects(maker.make('anna', 'phone'), { code: 'conflict' })
    await t.rejects(maker.make('anna', 'a long, long name'), { code: 'bad_request' })
    await t.rejects(maker.check('anna', 'phone'), { code: 'conflict' })
    await t.rejects(maker.check('anna', 'a long, long name'), { code: 'bad_request' })
    await maker.check('anna', 'desk')
    await maker.make('bob', 'phone')
    await maker.make('anna', 'desk')
    t.strictSame(await maker.names('anna'), ['phone', 'desk'])
    await maker.make('anna', 'tablet')
    await t.rejects(maker.make('anna', 'more'), { code: 'forbidden' })
    await t.rejects(maker.make('cy', 'phone'), { code: 'forbidden' })
    await maker.revoke('anna', 'phone')
    await maker.revoke('anna', 'nothing')
    t.strictSame([await maker.names('anna'), await maker.names('bob')], [['desk', 'tablet'], ['phone']])

    const tokens = await tokensOver(records, ACCOUNTS)
    t.equal(tokens.check('anna', secret), null, 'what was revoked lets nobody in')
    await maker.revoke('anna', 'desk')
    const again = await maker.make('anna', 'phone')
    const later = await tokensOver(records, ACCOUNTS)
    t.match(later.check('anna', again), { isAdmin: false })
    t.equal(later.check('bob', again), null)
    await Promise.all([tokens.close(), later.close()])
  })
}
