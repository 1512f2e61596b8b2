/** A document of `_users` as an account. */
import { createHash, pbkdf2Sync } from 'node:crypto'
import t from 'tap'
import { userAccount } from '../../src/auth/accounts.ts'
import { verifyPassword } from '../../src/auth/password.ts'

const SALT = '5f2d1a0c9b8e7d6c'
const SHA = createHash('sha1').update(`pw${SALT}`).digest('hex')

function key(rounds: number, length: number, digest: string, password = 'pw', salt = SALT): string {
  return pbkdf2Sync(password, salt, rounds, length, digest).toString('hex')
}

t.test('passwords in every form that CouchDB has written', async (t) => {
  const table: Record<string, Record<string, unknown>> = {
    '1.0': { salt: SALT, password_sha: SHA },
    simple: { salt: SALT, password_sha: SHA, password_scheme: 'simple' },
    '1.3 to 3.3': { salt: SALT, password_scheme: 'pbkdf2', iterations: 10, derived_key: key(10, 20, 'sha1') },
    'without its rounds': { salt: SALT, password_scheme: 'pbkdf2', derived_key: key(10_000, 20, 'sha1') },
    '3.4': {
      salt: SALT,
      password_scheme: 'pbkdf2',
      pbkdf2_prf: 'sha512',
      iterations: 11,
      derived_key: key(11, 64, 'sha512'),
    },
    '3.5, in between': {
      salt: SALT,
      password_scheme: 'simple+pbkdf2',
      pbkdf2_prf: 'sha256',
      iterations: 12,
      derived_key: key(12, 32, 'sha256', SHA),
    },
    'an odd salt': {
      salt: 'a,b\n,c',
      password_scheme: 'pbkdf2',
      iterations: 10,
      derived_key: key(10, 20, 'sha1', 'pw', 'a,b\n,c'),
    },
  }
  for (const [name, hash] of Object.entries(table)) {
    const account = userAccount('anna', { name: 'anna', roles: [], ...hash })
    t.equal(account?.salt, hash.salt, name)
    t.equal(await verifyPassword('pw', account?.stored ?? ''), true, name)
    t.equal(await verifyPassword('pW', account?.stored ?? ''), false, name)
  }
})

t.test('what opens by no password', async (t) => {
  const good = { salt: SALT, password_scheme: 'pbkdf2', iterations: 10, derived_key: key(10, 20, 'sha1') }
  const table: Record<string, object> = {
    nothing: {},
    'an unknown scheme': { ...good, password_scheme: 'bcrypt' },
    'an unknown digest': { ...good, pbkdf2_prf: 'md5' },
    'a digest of another length': { ...good, pbkdf2_prf: 'sha256' },
    'no rounds': { ...good, iterations: 0 },
    'rounds without end': { ...good, iterations: 1e9 },
    'rounds that are none': { ...good, iterations: 'x' },
    'a key that is none': { ...good, derived_key: null },
    'a second factor': { ...good, totp: { key: 'JBSWY3DPEHPK3PXP' } },
    'no hash of its scheme': { ...good, password_scheme: 'simple' },
  }
  for (const [name, hash] of Object.entries(table)) {
    t.match(userAccount('anna', { name: 'anna', roles: [], ...hash }), { name: 'anna', stored: null }, name)
  }
})

t.test('roles, and what is no account at all', async (t) => {
  const roles = (given: unknown) => userAccount('anna', { name: 'anna', roles: given })?.roles
  t.same(roles(['a', '_admin', '_metrics', '_x', 7, null, 'b']), ['a', '_metrics', 'b'])
  for (const odd of [undefined, null, 'a', {}]) t.same(roles(odd), [])
  for (const doc of [null, [], 'x', {}, { name: 'bert' }, { name: ['anna'] }]) {
    t.equal(userAccount('anna', doc), null)
  }
  t.throws(() => userAccount('anna', { name: 'anna', roles: [], _conflicts: ['1-a'] }), {
    code: 'account_conflicts',
  })
})
