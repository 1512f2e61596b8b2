/** `GET /_settee/configuration`: every setting, where its value comes from, and what is unsafe. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { ListedSetting } from '../../src/config/setting-list.ts'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { connect } from './client.ts'

const INI = `[chttpd_auth]
iterations = 10
secret = a-secret-that-nobody-sees
[couch_httpd_auth]
timeout = 1200
[nobody]
reads = this
[admins]
`

async function start(t: Test, options: { readonly env?: NodeJS.ProcessEnv } = {}) {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), INI, { mode: 0o600 })
  const call = connect(t, await startTestServer(t, { dataDir, ...options }))
  return async () => {
    const { json, text } = await call('GET', '/_settee/configuration')
    const settings = (json as { settings: ListedSetting[] }).settings
    const of = (section: string, key: string) =>
      settings.find((each) => each.section === section && each.key === key)
    return { call, json, text, settings, of }
  }
}

t.test('values, defaults, kinds and sources', async (t) => {
  const read = await start(t, { env: { SETTEE_BIND: '127.0.0.1', SETTEE_LOG_LEVEL: 'debug' } })
  const { call, text, of, settings } = await read()
  t.match(of('chttpd', 'port'), {
    ...{ value: '0', default: '5984', source: 'command line', source_name: '--port' },
    ...{ read_at_start: true, restart_needed: false, editable: true, unsafe: null },
    kind: { type: 'integer', min: 0, max: 65_535 },
    about: /port/,
  })
  t.match(of('log', 'level'), {
    source: 'command line',
    source_name: '--log-level',
    kind: { type: 'choice' },
  })
  t.match(of('settee', 'keep_days'), { value: '30', default: '30', source: 'default', source_name: null })
  t.match(of('couchdb', 'database_dir'), { value: /databases$/, default: null, editable: false })
  t.match(of('chttpd_auth', 'iterations'), {
    ...{ value: '10', source: 'local.ini', unsafe: { severity: 'danger', reason: /rounds/ } },
  })
  t.match(of('chttpd_auth', 'secret'), { value: '**********', secret: true })
  t.match(of('chttpd_auth', 'timeout'), { value: '1200', default: '600' }, 'the older section counts')
  t.match(of('couch_httpd_auth', 'timeout'), {
    source: 'local.ini',
    about: /used if chttpd_auth\/timeout/,
  })
  t.match(of('nobody', 'reads'), { value: 'this', about: null, default: null, kind: { type: 'text' } })
  t.notMatch(text, /a-secret-that/)
  t.notOk(settings.some(({ section }) => section === 'admins'))

  const put = (path: string, value: string, headers = {}) =>
    call('PUT', `/_node/_local/_config/${path}`, { body: JSON.stringify(value), headers })
  await put('settee/keep_days', '0')
  await put('log/level', 'info', { 'X-Couch-Persist': 'false' })
  await put('couchdb/max_dbs_open', '100')
  const after = await read()
  t.match(after.of('settee', 'keep_days'), {
    value: '0',
    source: 'local.ini',
    unsafe: { severity: 'danger' },
  })
  t.match(after.of('log', 'level'), { value: 'info', source: 'memory', source_name: null })
  t.match(after.of('couchdb', 'max_dbs_open'), { value: '100', restart_needed: true })
  t.match(after.json, { left_out: 0 })
  t.ok(
    (after.json as { unsafe: { key: string }[] }).unsafe.some(({ key }) => key === 'keep_days'),
    'the list of all that is unsafe',
  )
  await call('DELETE', '/_node/_local/_config/settee/keep_days')
  await call('POST', '/_node/_local/_config/_reload')
  const reset = await read()
  t.match(reset.of('settee', 'keep_days'), { value: '30', source: 'default', unsafe: null })
  t.match(reset.of('log', 'level'), { source: 'command line' }, 'a reload ends values in memory')
})
