/** The settings in the console: their groups, values as people read them, and lines of the log. */
import t from 'tap'
import { entryOf, factsOf, MAX_ENTRIES, withNewest } from '../../console/src/screens/settings/log-lines.ts'
import type { Setting, SettingKind } from '../../console/src/screens/settings/setting.ts'
import { filterSettings, groupOf } from '../../console/src/screens/settings/setting-groups.ts'
import { hashForm, problemOf, shownValue } from '../../console/src/screens/settings/setting-values.ts'
import { KNOWN_KEYS } from '../../src/config/defaults.ts'

function setting(
  value: string | null,
  kind: SettingKind,
  about = 'a setting',
  more: Partial<Setting> = {},
): Setting {
  return {
    ...{ section: 'settee', key: 'keep_days', value, default: null, kind, about, source: 'default' },
    ...{
      source_name: null,
      read_at_start: false,
      restart_needed: false,
      editable: true,
      secret: false,
      unsafe: null,
    },
    ...more,
  }
}

const NUMBER: SettingKind = { type: 'integer', min: 0, max: 36_500 }

t.test('every key has a group', async (t) => {
  const others = KNOWN_KEYS.filter((known) => groupOf(known) === 'other').map(
    ({ section, key }) => `${section}/${key}`,
  )
  t.strictSame(others, ['couchdb/single_node', 'cluster/n', 'settee/node_name'])
  t.equal(groupOf({ section: 'cors:example.org', key: 'origins' }), 'network')
  t.equal(groupOf({ section: 'nobody', key: 'knows' }), 'other')
  t.equal(groupOf({ section: '__proto__', key: 'x' }), 'other')
})

t.test('filters', async (t) => {
  const all = [
    setting('30', NUMBER, 'days that bodies are kept'),
    setting('x', { type: 'text' }, 'a text', { key: 'backup_folder', source: 'local.ini' }),
    setting('**********', { type: 'text' }, 'a secret', { section: 'ssl', key: 'password', secret: true }),
  ]
  const keys = (group: Parameters<typeof filterSettings>[1]['group'], text = '') =>
    filterSettings(all, { group, text }).map(({ key }) => key)
  t.strictSame(keys('all', ' KEEP bodies'), ['keep_days'])
  t.strictSame(keys('all', '30'), ['keep_days'], 'a setting is found by its value')
  t.strictSame(keys('all', '***'), [], 'a secret value is not searched')
  t.strictSame(keys('changed'), ['backup_folder'])
  t.strictSame(keys('backups'), ['backup_folder'])
  t.strictSame(keys('unsafe'), [])
})

t.test('values', async (t) => {
  const shown = (value: string | null, kind: SettingKind, about?: string) =>
    shownValue(setting(value, kind, about))
  t.equal(shown('30', NUMBER, 'days that'), '30 days')
  t.match(shown('600', NUMBER, 'seconds until'), /^600 s \(10 min\)$/)
  t.match(shown('5000', NUMBER, 'milliseconds that'), /^5.000 ms$/)
  t.match(shown('67108864', { type: 'bytes', min: 0 }), /^67.108.864 B \(67 MB\)$/)
  t.equal(shown('infinity', { type: 'count', min: 0 }), 'no limit')
  t.equal(shown(null, NUMBER), 'not set')
  t.equal(shown('0123', { type: 'text' }), '0123')
  t.equal(shownValue(setting('**********', { type: 'text' }, '', { secret: true })), 'set, and never shown')
  for (const bad of ['', '-1', '36501', '1.5', '1e3', 'x']) t.ok(problemOf(NUMBER, bad), bad)
  t.equal(problemOf(NUMBER, ' 36500 '), null)
  t.equal(problemOf({ type: 'bytes', min: 1 }, 'infinity'), null)
  t.ok(problemOf({ type: 'count', min: 1 }, '0'))
  t.match(hashForm('-pbkdf2:sha256-0a,salt,600000'), { text: /SHA-256/, isWeak: false })
  t.match(hashForm('-pbkdf2-0a,salt,10'), { text: /SHA-1, 10 rounds/, isWeak: true })
  t.match(hashForm('-hashed-0a,salt'), { isWeak: true })
  t.equal(hashForm('plain'), null)
})

t.test('lines of the log', async (t) => {
  const line = { level: 'warn', time: '2026-01-01T00:00:00Z', method: 'GET', path: '/x', status: 404, ms: 3 }
  t.equal(factsOf({ ...line, err: { message: 'broken' } }), 'GET /x · 404 · 3 ms · broken')
  t.equal(factsOf({ level: 'info', time: '', backup: 'b' }), 'backup: b')
  t.equal(entryOf({ last_seq: '1-a' }), null)
  t.match(entryOf({ missed: 3 }), { missed: 3 })
  const many = Array.from({ length: MAX_ENTRIES + 5 }, (_, n) => ({ key: String(n), missed: n + 1 }))
  const kept = withNewest([{ key: 'old', missed: 1 }], many)
  t.equal(kept.length, MAX_ENTRIES)
  t.equal(kept[0]?.key, String(MAX_ENTRIES + 4), 'the newest first')
})
