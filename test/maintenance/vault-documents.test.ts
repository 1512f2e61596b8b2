/** What a vault's database and the configuration are to say, from what they say. */
import t from 'tap'
import { databaseRole } from '../../src/documents/security.ts'
import { liveSyncChanges, MOBILE_FILTER } from '../../src/vaults/livesync.ts'
import { openedTo, withMobileFilter } from '../../src/vaults/vaults.ts'
import { SETTINGS } from '../protocol/livesync-check.ts'

t.test('an account is let in, and nobody is shut out who is in a list', async (t) => {
  const fresh = openedTo(null, 'anna')
  t.strictSame(fresh, { admins: { names: ['anna'], roles: [] }, members: { names: ['anna'], roles: [] } })
  const role = (name: string | null, security = fresh) => databaseRole({ name, roles: [] }, security)
  t.strictSame([role('anna'), role('bob'), role(null)], ['admin', 'none', 'none'])
  t.equal(openedTo(fresh, 'anna'), null)

  const shared = openedTo(
    { ...fresh, members: { names: ['cy'], roles: ['staff'] }, note: 'kept', admins: { roles: ['boss'] } },
    'bob',
  )
  t.strictSame(shared, {
    note: 'kept',
    admins: { names: ['bob'], roles: ['boss'] },
    members: { names: ['cy', 'bob'], roles: ['staff'] },
  })
  t.equal(openedTo(shared, 'bob'), null)
  t.match(openedTo(shared, 'cy'), { admins: { names: ['bob', 'cy'] }, members: { names: ['cy', 'bob'] } })
  const old = openedTo({ readers: { names: ['dora'] } }, 'bob')
  t.match(old, { members: { names: ['dora', 'bob'] } }, 'who came in by the old name of the list still does')
  const open = openedTo({ members: { names: [], roles: [] } }, 'bob')
  t.equal(role(null, open), 'none', 'a vault is open to nobody else')
})

t.test('the mobile filter', async (t) => {
  t.strictSame(withMobileFilter(null), { filters: { sync: MOBILE_FILTER } })
  const views = { all: { map: 'function () {}' } }
  t.strictSame(withMobileFilter({ _id: '_design/mobile', _rev: '1-a', views, filters: { other: 'x' } }), {
    _id: '_design/mobile',
    _rev: '1-a',
    views,
    filters: { other: 'x', sync: MOBILE_FILTER },
  })
  for (const sync of [MOBILE_FILTER, 'function(doc) {\n  return doc._id.indexOf("file:") === -1;\n}']) {
    t.equal(withMobileFilter({ filters: { sync } }), 'there')
  }
  for (const filters of [{ sync: 'function () { return true }' }, { sync: 1 }, [], 'x']) {
    t.equal(withMobileFilter({ filters }), 'differs')
  }
})

t.test('the keys that LiveSync looks at', async (t) => {
  const paths = (found: Record<string, string>, hasAdmin = true) =>
    liveSyncChanges((section, key) => found[`${section}/${key}`], hasAdmin).map(
      ({ section, key, value }) => [`${section}/${key}`, value] as const,
    )
  t.strictSame(paths({}), SETTINGS, 'what its scripts write')
  t.strictSame(paths(Object.fromEntries(SETTINGS)), [])
  const without = SETTINGS.filter(([path]) => !path.endsWith('require_valid_user'))
  t.strictSame(paths({}, false), without, 'nobody is shut out of a server without an admin')
  const more = {
    ...Object.fromEntries(SETTINGS),
    'chttpd/max_http_request_size': '9999999999',
    'couchdb/max_document_size': 'infinity',
    'httpd/WWW-Authenticate': 'Basic realm="mine"',
    'cors/origins': '*',
  }
  t.strictSame(paths(more), [], 'nothing is lowered')
  const origins = { ...more, 'cors/origins': 'https://mine.example, app://obsidian.md' }
  t.strictSame(paths(origins), [
    ['cors/origins', 'https://mine.example,app://obsidian.md,capacitor://localhost,http://localhost'],
  ])
})
