import t from 'tap'
import { openConfig } from '../../src/config/config.ts'
import { changedOverrides, defaultQuota, quotaWith, readQuota, shownQuota } from '../../src/hosted/usage.ts'
import { temporaryFolder } from '../helpers/server.ts'

t.test('what everybody may have is configured', async (t) => {
  const config = await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: {} })
  t.same(defaultQuota(config), {
    bytes: 1_073_741_824,
    documents: 1_000_000,
    databases: 10,
    document_size: Infinity,
    requests: 100,
    feeds: 50,
  })
  await config.set('quota', 'bytes', 'infinity')
  await config.set('quota', 'feeds', '3')
  t.match(defaultQuota(config), { bytes: Infinity, feeds: 3 })
  await t.rejects(config.set('quota', 'requests', '0'), { code: 'bad_request' })
  await t.rejects(config.set('quota', 'documents', 'many'), { code: 'bad_request' })
})

t.test('overrides are set, changed and taken back', async (t) => {
  const defaults = { bytes: 1, documents: 2, databases: 3, document_size: 4, requests: 5, feeds: 6 }
  const first = changedOverrides({}, readQuota({ bytes: 100, feeds: 'infinity' }))
  t.same(quotaWith(defaults, first), { ...defaults, bytes: 100, feeds: Infinity })
  const second = changedOverrides(first, readQuota({ bytes: null, documents: 0 }))
  t.same(quotaWith(defaults, second), { ...defaults, documents: 0, feeds: Infinity })
  t.same(shownQuota(second), { documents: 0, feeds: 'infinity' })
  t.same(changedOverrides({}, readQuota(JSON.parse(JSON.stringify(shownQuota(second))))), second)
})

t.test('what is no quota is refused', async (t) => {
  for (const value of [null, [], 'x', 7]) {
    t.throws(() => readQuota(value), { code: 'bad_request' }, JSON.stringify(value))
  }
  for (const limit of [-1, 1.5, '7', true, {}, Number.MAX_VALUE, 'Infinity']) {
    t.throws(() => readQuota({ bytes: limit }), { code: 'bad_request' }, JSON.stringify(limit))
  }
  t.throws(() => readQuota({ requests: 0 }), { message: /at least 1/ })
  t.throws(() => readQuota({ colour: 1 }), { message: /not `colour`/ })
  t.throws(() => readQuota(JSON.parse('{"__proto__":1}')), { code: 'bad_request' })
})
