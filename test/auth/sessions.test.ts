import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { Account } from '../../src/auth/accounts.ts'
import { digestsOf, isSealed, parseSession, Sessions, sealSession } from '../../src/auth/sessions.ts'
import { openConfig } from '../../src/config/config.ts'
import { settled } from '../changes/helpers.ts'
import { MemoryRecords, SharedRecords } from '../storage/memory/records.ts'

const NOW = 1_700_000_000_000

async function setUp(t: Test, env: NodeJS.ProcessEnv = {}) {
  const config = await openConfig({ dataDir: t.testdir(), env, flags: {} })
  const accounts = new Map<string, Account>()
  const add = (name: string, salt = 'salt'): Account => {
    const account = { name, salt, roles: ['r'], stored: 'x' }
    accounts.set(name, account)
    return account
  }
  const find = async (name: string) => accounts.get(name) ?? null
  const warnings: string[] = []
  const shared = new SharedRecords()
  const options = { config, accounts: { find }, warn: (text: string) => void warnings.push(text) }
  /** The sessions of another node, or of this one after a restart. */
  const node = () => new Sessions({ ...options, records: new MemoryRecords(shared) })
  return { config, accounts, add, anna: add('anna'), warnings, sessions: node(), node, shared }
}

t.test('a session lasts its time, and is renewed when a tenth of it is over', async (t) => {
  const { sessions, anna } = await setUp(t)
  const cookie = await sessions.open(anna, NOW)
  t.match(await sessions.read(cookie, NOW), { account: anna, renewal: null, until: NOW + 600_000 })
  t.match(await sessions.read(cookie, NOW + 59_999), { account: anna, renewal: null })
  t.match(await sessions.read(cookie, NOW + 61_000), { account: anna, renewal: /^[\w-]+$/ })
  t.match(await sessions.read(cookie, NOW + 599_999), { renewal: String })
  t.equal(await sessions.read(cookie, NOW + 600_000), 'expired')
  const state = await sessions.read(cookie, NOW + 300_000)
  const renewed = typeof state === 'object' ? (state?.renewal ?? '') : ''
  t.match(
    await sessions.read(renewed, NOW + 887_000),
    { account: anna },
    'a session is renewed in steps of 32 s',
  )
  t.equal(await sessions.read(renewed, NOW + 888_000), 'expired')
})

t.test('the secret is made once, kept, and the given one is used', async (t) => {
  const { config, sessions, anna, node } = await setUp(t)
  t.equal(config.get('chttpd_auth', 'secret'), undefined)
  const cookies = await Promise.all([1, 2, 3].map((second) => sessions.open(anna, NOW + second * 1000)))
  t.match(config.get('chttpd_auth', 'secret'), /^[0-9a-f]{32}$/)
  t.equal(await config.stored('chttpd_auth', 'secret'), config.get('chttpd_auth', 'secret'))
  const later = node()
  for (const cookie of cookies) t.match(await later.read(cookie, NOW + 5000), { account: anna })
  const given = await setUp(t, { COUCHDB_SECRET: 'given' })
  const text = parseSession(await given.sessions.open(anna, NOW))
  t.match(text, { name: 'anna', time: NOW / 1000 })
  t.ok(text !== null && isSealed(text, 'givensalt', ['sha256']))
})

t.test('a cookie that came from CouchDB is taken, one made with SHA-1 too', async (t) => {
  const { config, sessions, anna } = await setUp(t)
  const time = (NOW / 1000).toString(16).toUpperCase()
  t.equal(
    await sessions.read(sealSession('anna', time, 'salt', 'sha256'), NOW),
    null,
    'without a secret, no session is valid',
  )
  await config.set('couch_httpd_auth', 'secret', 'old')
  for (const digest of ['sha256', 'sha1']) {
    t.match(await sessions.read(sealSession('anna', time, 'oldsalt', digest), NOW), { account: anna })
  }
  t.equal(await sessions.read(sealSession('anna', time, 'oldsalt', 'sha512'), NOW), null)
})

t.test('cookies that are refused', async (t) => {
  const { sessions, accounts, add, anna, config } = await setUp(t)
  const cookie = await sessions.open(anna, NOW)
  const secret = config.get('chttpd_auth', 'secret') ?? ''
  t.equal(await sessions.read('!', NOW), 'malformed')
  t.equal(await sessions.read('YW5uYQ', NOW), 'malformed')
  const [, middle = ''] = Buffer.from(cookie, 'base64').toString('latin1').split(':')
  t.equal(await sessions.read(sealSession('anna', middle, 'guess', 'sha256'), NOW), null)
  t.equal(await sessions.read(sealSession('anna', 'XYZ', `${secret}salt`, 'sha256'), NOW), null)
  t.equal(await sessions.read(sealSession('nobody', middle, `${secret}salt`, 'sha256'), NOW), null)
  const bytes = Buffer.from(cookie, 'base64')
  for (let at = 0; at < bytes.length; at++) {
    const tampered = Buffer.from(bytes)
    tampered[at] = (tampered[at] ?? 0) ^ 1
    const state = await sessions.read(tampered.toString('base64url'), NOW)
    t.ok(state === null || state === 'malformed', `byte ${at}`)
  }
  add('anna', 'other')
  t.equal(await sessions.read(cookie, NOW), null, 'a new password ends the session')
  accounts.delete('anna')
  t.equal(await sessions.read(cookie, NOW), null, 'a deleted account has no session')
  t.equal(
    await sessions.read(cookie, NOW + 700_000),
    null,
    'a session of a deleted account is unknown, not expired',
  )
})

t.test(
  'a session that was ended stays so, with every cookie that was made for it; others go on',
  async (t) => {
    const { sessions, anna, add } = await setUp(t)
    const first = await sessions.open(anna, NOW)
    const ended: unknown[] = []
    const forget = sessions.onChange((names) => ended.push(names))
    const second = await sessions.open(anna, NOW)
    t.not(first, second, 'two logins within a second have different cookies')
    const renewalOf = async (cookie: string) => {
      const state = await sessions.read(cookie, NOW + 100_000)
      return typeof state === 'object' ? (state?.renewal ?? '') : ''
    }
    const renewed = await renewalOf(first)
    t.equal(await renewalOf(first), renewed, 'concurrent requests get the same renewed cookie')
    await sessions.end(renewed, NOW + 100_000)
    t.strictSame(ended, [new Set(['anna'])])
    t.equal(await sessions.read(renewed, NOW + 100_000), null)
    t.equal(await sessions.read(first, NOW + 100_000), null)
    t.match(await sessions.read(second, NOW + 100_000), { account: anna })
    t.match(
      await sessions.read(await sessions.open(anna, NOW), NOW),
      { account: anna },
      'the next login is not affected',
    )
    forget()
    await sessions.end(second, NOW + 100_000)
    t.equal(ended.length, 1)
    const many = await Promise.all(Array.from({ length: 40 }, () => sessions.open(add('bob'), NOW)))
    for (const cookie of many) t.match(await sessions.read(cookie, NOW), { account: { name: 'bob' } })
  },
)

t.test('a session that one node ended is ended on all, and after a restart', async (t) => {
  const { sessions, anna, node, shared } = await setUp(t)
  const other = node()
  const first = await sessions.open(anna, NOW)
  // Two nodes may give sessions of the same second one name.
  const second = await other.open(anna, NOW + 1000)
  const renewalAt = async (node: Sessions, cookie: string, ms: number) => {
    const state = await node.read(cookie, NOW + ms)
    return state !== null && typeof state === 'object' ? (state.renewal ?? '') : ''
  }
  const renewed = await renewalAt(other, first, 100_000)
  t.equal(
    await renewalAt(sessions, first, 100_000),
    renewed,
    'both nodes renew the session to the same cookie',
  )
  const ended: unknown[] = []
  other.onChange((names) => ended.push(names))
  await sessions.end(first, NOW + 200_000)
  // The other node has not heard of it yet.
  const late = await renewalAt(other, renewed, 200_000)
  await settled()
  t.strictSame(ended, [new Set(['anna'])], 'open feeds of the other node end')
  for (const each of [sessions, other, node()]) {
    for (const cookie of [first, renewed, late]) t.equal(await each.read(cookie, NOW + 201_000), null)
    t.match(await each.read(second, NOW + 201_000), { account: anna })
  }
  t.equal(shared.openers.values().next().value?.all('ended-session').length, 1)
  await sessions.close()
})

t.test('what has expired is removed as more sessions end', async (t) => {
  const { sessions, anna, shared } = await setUp(t)
  const records = new MemoryRecords(shared)
  for (let at = 0; at < 200; at++) {
    await sessions.end(await sessions.open(anna, NOW + at * 100_000), NOW + at * 100_000)
    await settled()
  }
  t.ok(records.all('ended-session').length < 30, String(records.all('ended-session').length))
})

t.test('a damaged record of an ended session is no fault of a request, and revives no session', async (t) => {
  const { sessions, anna, node, shared, warnings } = await setUp(t)
  const [ended, other] = [await sessions.open(anna, NOW), await sessions.open(anna, NOW)]
  await sessions.end(ended, NOW)
  const [[place, record]] = shared.values as unknown as [
    [string, { kind: string; key: string; value: string }],
  ]
  for (const value of ['{', 'null', '[]', '{}', '"x"', '{"until":"x"}']) {
    shared.values.set(place, { ...record, value })
    const again = node()
    t.equal(await again.read(ended, NOW), null, value)
    t.match(await again.read(other, NOW), { account: anna })
    await again.end(await again.open(anna, NOW + 60_000), NOW + 60_000)
    await again.close()
    t.equal(shared.values.get(place)?.value, value)
  }
  t.strictSame(warnings, [])
})

t.test('a session whose end cannot be stored goes on', async (t) => {
  const { config, anna } = await setUp(t)
  const records = new MemoryRecords()
  records.writeRecords = async () => {
    throw new Error('full')
  }
  const sessions = new Sessions({ config, accounts: { find: async () => anna }, records, warn: t.fail })
  const cookie = await sessions.open(anna, NOW)
  await t.rejects(sessions.end(cookie, NOW), { message: 'full' })
  t.match(await sessions.read(cookie, NOW), { account: anna })
})

t.test('another secret ends every session', async (t) => {
  const { sessions, anna, config } = await setUp(t)
  const cookie = await sessions.open(anna, NOW)
  const ended: unknown[] = []
  sessions.onChange((names) => ended.push(names))
  await config.set('chttpd_auth', 'secret', 'another')
  t.strictSame(ended, ['all'])
  t.equal(await sessions.read(cookie, NOW), null)
})

/** As protocol.md 11.3 says it, step by step. */
function couchCookie(name: string, seconds: number, secret: string, salt: string, digest: string): string {
  const text = `${name}:${seconds.toString(16).toUpperCase()}`
  const mac = createHmac(digest, secret + salt)
    .update(text)
    .digest('binary')
  return Buffer.concat([Buffer.from(`${text}:`), Buffer.from(mac, 'latin1')])
    .toString('base64')
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '')
}

t.test("a cookie is CouchDB's own", async (t) => {
  for (const name of ['anna', 'Änne', 'a b@c']) {
    const made = sealSession(name, (1_700_000_000).toString(16).toUpperCase(), 'secretsalt', 'sha256')
    t.equal(made, couchCookie(name, 1_700_000_000, 'secret', 'salt', 'sha256'))
    t.match(parseSession(made), { name, time: 1_700_000_000 })
  }
  const old = parseSession(couchCookie('anna', 1, 'secret', 'salt', 'sha1'))
  t.ok(old !== null && isSealed(old, 'secretsalt', ['sha256', 'sha1']))
  t.notOk(old !== null && isSealed(old, 'secretsalt', ['sha256']))
})

t.test('whatever is made is read, and opens with its own key alone', async (t) => {
  const name = fc
    .string({ unit: 'grapheme', minLength: 1 })
    .filter((text) => !text.includes(':') && text.isWellFormed() && !text.includes('\ufffd'))
  fc.assert(
    fc.property(name, fc.nat(), fc.string(), fc.string(), (name, time, key, other) => {
      const text = parseSession(sealSession(name, time.toString(16), key, 'sha256'))
      t.match(text, { name, time })
      return (
        text !== null &&
        isSealed(text, key, ['sha256']) &&
        (key === other || !isSealed(text, other, ['sha256']))
      )
    }),
  )
})

t.test('no bytes break the reader', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      const text = parseSession(Buffer.from(bytes).toString('base64url'))
      return text === null || !isSealed(text, 'key', ['sha256', 'sha1'])
    }),
  )
  for (const value of ['', '!', 'a b', 'YQ', 'YTpi', '====', 'é']) t.equal(parseSession(value), null, value)
  t.match(parseSession(Buffer.from('a:xyz:mac').toString('base64')), { time: Number.NaN })
  t.match(parseSession(Buffer.from('a:-1:mac').toString('base64')), { time: Number.NaN })
  t.match(parseSession(Buffer.from([0xff, 0x3a, 0x31, 0x3a, 1]).toString('base64')), { name: '' })
})

t.test('lists of digests', async (t) => {
  t.strictSame(digestsOf('sha256, sha'), ['sha256', 'sha1'])
  t.strictSame(digestsOf('sha512'), ['sha512'])
  t.strictSame(digestsOf('nonsense, md4'), ['sha256', 'sha1'])
})
