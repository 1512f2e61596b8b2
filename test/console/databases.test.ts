/** What the console's screens of databases decide without a browser. */
import t from 'tap'
import {
  type Access,
  accessOf,
  isAdminOf,
  isSameAccess,
  removedFrom,
  securityOf,
} from '../../console/src/screens/databases/access-rules.ts'
import { nameFault } from '../../console/src/screens/databases/database-name.ts'
import { plottedDays } from '../../console/src/screens/databases/growth-days.ts'
import { fromLocal, toLocal } from '../../console/src/screens/databases/local-time.ts'
import {
  attachmentsOf,
  contentText,
  type DiffLine,
  withGaps,
} from '../../console/src/screens/databases/version-text.ts'

const NOBODY: Access = {
  entry: 'admins',
  memberNames: [],
  memberRoles: [],
  adminNames: [],
  adminRoles: [],
}

t.test('a security object in plain words, and back', async (t) => {
  for (const [security, entry] of [
    [{}, 'admins'],
    [{ admins: { names: ['a'] } }, 'admins'],
    [{ members: { roles: ['_admin'] } }, 'admins'],
    [{ members: {} }, 'everyone'],
    [{ members: { names: [], roles: [] } }, 'everyone'],
    [{ members: { names: ['m'] } }, 'members'],
    [{ members: { roles: ['r', '_admin'] } }, 'members'],
    [{ readers: { names: ['m'] } }, 'members'],
  ] as const) {
    const access = accessOf(security)
    t.equal(access.entry, entry, JSON.stringify(security))
    t.ok(
      isSameAccess(accessOf(securityOf(access, security)), access),
      'the security object converts back to the same access',
    )
  }
  t.strictSame(securityOf(NOBODY), {
    admins: { names: [], roles: [] },
    members: { names: [], roles: ['_admin'] },
  })
  const emptied = securityOf({ ...NOBODY, entry: 'members' })
  t.equal(accessOf(emptied).entry, 'admins', 'without the last name it is closed, not public')
  t.strictSame(securityOf({ ...NOBODY, entry: 'everyone', memberNames: ['m'] }).members, {
    names: [],
    roles: [],
  })
  const before = { admins: { names: ['a'], roles: ['_admin'] }, couchdb_auth_only: true } as object
  t.match(
    securityOf(accessOf(before), before),
    { ...before },
    'unknown members of the security object are kept',
  )
})

t.test('who loses what', async (t) => {
  const before = { ...NOBODY, entry: 'members', memberNames: ['m', 'n'], adminNames: ['d'] } as const
  t.strictSame(removedFrom(before, { ...before, memberNames: ['n'], adminNames: ['d', 'm'] }), [])
  t.strictSame(removedFrom(before, { ...before, memberNames: ['n'] }), ['m'])
  t.strictSame(removedFrom(before, { ...before, entry: 'admins' }), ['m', 'n'])
  t.strictSame(removedFrom(before, { ...before, entry: 'everyone' }), [])
  const caller = { name: 'd', roles: ['r'], isAdmin: false }
  t.ok(isAdminOf(caller, before))
  t.notOk(isAdminOf(caller, NOBODY))
  t.ok(isAdminOf(caller, { ...NOBODY, adminRoles: ['r'] }))
  t.ok(isAdminOf({ ...caller, isAdmin: true }, NOBODY))
})

t.test('names of new databases', async (t) => {
  for (const name of ['notes', 'a', 'n0_$()+-/x']) t.equal(nameFault(name), null, name)
  for (const [name, fault] of [
    ['', 'empty'],
    ['Notes', 'capitals'],
    ['1st', 'first'],
    ['_x', 'first'],
    ['a b', 'characters'],
    ['ä', 'characters'],
  ] as const) {
    t.equal(nameFault(name), fault, name)
  }
})

t.test('days without a write have the size of the day before', async (t) => {
  const day = (date: string, doc_count: number) => ({ date, doc_count, file: doc_count * 10 })
  const now = { documents: 9, file: 99 }
  t.strictSame(plottedDays([day('2025-02-27', 3), day('2025-03-01', 9)], now, '2025-03-01', 4), [
    { date: '2025-02-26', documents: null, file: null },
    { date: '2025-02-27', documents: 3, file: 30 },
    { date: '2025-02-28', documents: 3, file: 30 },
    { date: '2025-03-01', ...now },
  ])
  t.equal(plottedDays([], now, '2025-03-01').length, 31)
})

t.test('local times', async (t) => {
  const time = '2025-03-01T14:05:06.789Z'
  t.equal(fromLocal(toLocal(time), 0), '2025-03-01T14:05:06.000Z')
  t.equal(toLocal(undefined), '')
  t.equal(toLocal('soon'), '')
  t.equal(fromLocal('', 0), undefined)
  const minute = toLocal(time).slice(0, 16)
  t.equal(fromLocal(minute, 59_999), '2025-03-01T14:05:59.999Z', 'the end of the minute')
  t.equal(fromLocal(`${minute}:06`, 59_999), '2025-03-01T14:05:06.999Z', 'the end of the second')
})

t.test('the content of a version keeps its numbers', async (t) => {
  const text =
    '{"_id":"a","_rev":"1-x","n":9007199254740993,"m":1.0,"_attachments":{"f":{"content_type":"text/plain","revpos":1,"digest":"md5-x","length":6,"stub":true}}}'
  t.equal(contentText(text), '{\n  "n": 9007199254740993,\n  "m": 1.0\n}')
  t.strictSame(attachmentsOf(text), [{ name: 'f', type: 'text/plain', length: 6, digest: 'md5-x' }])
  t.strictSame(attachmentsOf('{"a":1}'), [])
})

t.test('unchanged lines far from a change are left out', async (t) => {
  const lines = Array.from(
    { length: 20 },
    (_, at): DiffLine => ({
      kind: at === 10 ? 'added' : 'same',
      text: String(at),
    }),
  )
  const shown = withGaps(lines)
  t.strictSame(
    shown.map((line) => (line.kind === 'gap' ? line.lines : line.text)),
    [7, '7', '8', '9', '10', '11', '12', '13', 6],
  )
  const many = withGaps(Array.from({ length: 5000 }, (_, at) => ({ kind: 'added', text: String(at) })))
  t.strictSame([many.length, many.at(-1)], [2001, { kind: 'gap', lines: 3000 }])
})
