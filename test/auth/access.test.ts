import t from 'tap'
import { ANONYMOUS, isServerAdmin, PARTY_ADMIN, requireServerAdmin } from '../../src/auth/accounts.ts'

t.test('only the role _admin makes a server admin', (t) => {
  const refused = {
    name: 'CouchError',
    status: 401,
    error: 'unauthorized',
    reason: 'You are not a server admin.',
  }
  for (const user of [
    ANONYMOUS,
    { name: '_admin', roles: [] },
    { name: 'x', roles: ['admin', '_metrics'] },
  ]) {
    t.notOk(isServerAdmin(user))
    t.throws(() => requireServerAdmin(user), refused)
  }
  for (const user of [PARTY_ADMIN, { name: 'anna', roles: ['notes', '_admin'] }]) {
    t.ok(isServerAdmin(user))
    t.doesNotThrow(() => requireServerAdmin(user))
  }
  t.end()
})
