/** The device tokens in a server.sqlite of an older settee, which had all of a token in one record. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { hashOfSecret, newSecret, recordsOfToken, TOTAL_KIND } from '../../src/auth/token-record.ts'
import { newUuid } from '../../src/core/ids.ts'
import { Connection } from '../../src/storage/sqlite/connection.ts'
import { migrate } from '../../src/storage/sqlite/schema.ts'
import { SERVER_MIGRATIONS } from '../../src/storage/sqlite/server-migrations.ts'
import { sqliteEngine } from '../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { tokensOver } from '../helpers/tokens.ts'

const ACCOUNTS = {
  find: async (name: string) => ({ name, roles: [], stored: null, salt: '' }),
  onChange: () => () => undefined,
}
const USE = { time: 1_760_000_000_000, client: 'Obsidian "1"', address: '192.0.2.1' }
const POSITION = { database: 'notes', token: '7-a', time: 1_760_000_000_000 }

/** Older settees noted the uses and positions in the token's record. */
function oldToken(n: number) {
  const account = n % 2 === 0 ? 'anna' : ['bob', 'Zoë "z"', 'a/b', 'x'.repeat(200)][n % 4]!
  const secret = newSecret()
  const id = newUuid(1_700_000_000_000 + n)
  const own = { id, account, name: `device ${n} 📱`, isAdmin: n % 7 === 0, created: 1_700_000_000_000 + n }
  const uses = { lastUse: n % 3 === 0 ? USE : null, positions: n % 6 === 0 ? [POSITION] : [] }
  return { secret, uses, token: { ...own, hash: hashOfSecret(secret) } }
}

function oldValue({ token, uses }: ReturnType<typeof oldToken>): string {
  const { account, name, isAdmin, hash, created } = token
  const shown = { account, name, isAdmin, hash: hash.toString('base64url'), created, lastUse: uses.lastUse }
  return JSON.stringify({ ...shown, ...(uses.positions.length > 0 && { positions: uses.positions }) })
}

t.test('tokens of an older settee are found as new ones are', async (t) => {
  const dataDir = await temporaryFolder(t)
  const path = join(dataDir, 'server.sqlite')
  const connection = new Connection(path)
  migrate(connection, path, SERVER_MIGRATIONS.slice(0, 3))
  connection.close()
  // More than one stretch of the migration.
  const all = Array.from({ length: 2100 }, (_, n) => oldToken(n))
  const file = new Sqlite(path)
  const insert = file.prepare("INSERT INTO record (kind, key, value) VALUES ('token', ?, ?)")
  for (const one of all) insert.run(one.token.id, oldValue(one))
  const damaged = ['{', '[]', 'null', '{"account":"anna","name":"phone"}']
  for (const [at, value] of damaged.entries()) insert.run(`damaged${at}`, value)
  file.close()

  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  const catalog = await engine.openCatalog()
  const records = { ...bound(catalog), watchCatalog: catalog.watch.bind(catalog) }
  for (const { token, uses } of all.slice(0, 30)) {
    for (const { kind, key, value } of recordsOfToken(token, uses))
      t.strictSame(await records.readRecords(kind, [key]), [value], kind)
  }
  t.strictSame(await records.readRecords(TOTAL_KIND, ['all']), ['2100'])
  t.strictSame(await records.readRecords('token', ['damaged0', 'damaged3']), [damaged[0], damaged[3]])

  const faults: unknown[] = []
  const tokens = tokensOver(records, ACCOUNTS, {
    limits: () => ({ total: 2101, perAccount: 5000, nameLength: 50 }),
    onFault: (fault) => faults.push(fault),
  })
  t.teardown(() => tokens.close())
  for (const { secret, token } of [all[0]!, all[1]!, all[3]!, all[2099]!])
    t.match(await tokens.check(token.account, secret, ''), { id: token.id, isAdmin: token.isAdmin })
  const own = all.filter(({ token }) => token.account === 'Zoë "z"')
  t.strictSame(
    (await tokens.list('Zoë "z"', '', 5000)).tokens,
    own.map(({ token, uses }) => ({ ...token, ...uses })),
  )
  await t.rejects(tokens.make({ account: 'anna', name: 'device 2 📱', isAdmin: false }), { code: 'conflict' })
  await tokens.make({ account: 'anna', name: 'new', isAdmin: false })
  await t.rejects(tokens.make({ account: 'anna', name: 'another', isAdmin: false }), { code: 'forbidden' })
  t.equal(await tokens.revokeAll('Zoë "z"'), own.length)
  t.equal(faults.length, 0)
})

function bound(catalog: Awaited<ReturnType<ReturnType<typeof sqliteEngine>['openCatalog']>>) {
  return {
    readRecords: catalog.readRecords.bind(catalog),
    listRecords: catalog.listRecords.bind(catalog),
    writeRecords: catalog.writeRecords.bind(catalog),
  }
}
