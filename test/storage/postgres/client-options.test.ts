/** Where the password of a store comes from. */
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { clientOptions, passwordIn } from '../../../src/storage/postgres/client-options.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const ADDRESS = await readStoreAddress('postgres://anna@127.0.0.1:5433/notes', null)

async function passwordOf(env: NodeJS.ProcessEnv, passwordFile: string | null = null): Promise<string> {
  const { password } = clientOptions({ ...ADDRESS, passwordFile }, env)
  return (password as () => Promise<string>)()
}

t.test('the first line of a password file that fits counts', async (t) => {
  const file = String.raw`# 127.0.0.1:5433:notes:anna:no
127.0.0.1:5432:notes:anna:other port
*:*:*:bert:other user
127.0.0.1:*:notes:anna:a\:b\\c
*:*:*:*:last`
  t.equal(passwordIn(file, ADDRESS), String.raw`a:b\c`)
  t.equal(passwordIn(file, { ...ADDRESS, user: 'otto' }), 'last')
  t.equal(passwordIn('localhost:*:*:*:socket', { ...ADDRESS, host: '/run/postgresql' }), 'socket')
  t.equal(passwordIn('', ADDRESS), undefined)
})

t.test('a file of the settings comes first, then the environment, then the password file', async (t) => {
  const folder = await temporaryFolder(t)
  const named = join(folder, 'named')
  const PGPASSFILE = join(folder, 'pgpass')
  await writeFile(named, 'from the file\n')
  await writeFile(PGPASSFILE, '*:*:*:*:from pgpass\n', { mode: 0o600 })
  t.equal(await passwordOf({ PGPASSWORD: 'from the environment', PGPASSFILE }, named), 'from the file')
  t.equal(await passwordOf({ PGPASSWORD: 'from the environment', PGPASSFILE }), 'from the environment')
  t.equal(await passwordOf({ PGPASSFILE }), 'from pgpass')
  await writeFile(named, 'changed')
  t.equal(await passwordOf({}, named), 'changed', 'read for each connection')
  await chmod(PGPASSFILE, 0o644)
  await t.rejects(passwordOf({ PGPASSFILE }), { message: /Others may read/ })
  await t.rejects(passwordOf({}, join(folder, 'missing')), { code: 'ENOENT' })
})

t.test('TLS is what the address says, whatever the environment of pg says', async (t) => {
  const checks = (tls: typeof ADDRESS.tls) => clientOptions({ ...ADDRESS, tls }).ssl
  t.equal(checks(null), false)
  t.same(checks({ checks: 'none', roots: null }), { rejectUnauthorized: false })
  t.same(checks({ checks: 'full', roots: 'PEM' }), { rejectUnauthorized: true, ca: 'PEM' })
  t.match(checks({ checks: 'ca', roots: 'PEM' }), { rejectUnauthorized: true, checkServerIdentity: Function })
})
