/** What is hidden in documents of `_replicator`, and who can have it used. */
import t from 'tap'
import { SealingKey } from '../../src/replication/documents/sealing-key.ts'
import {
  maskCredentials,
  newSealingKey,
  sealCredentials,
  unsealCredentials,
} from '../../src/replication/requests/sealed-credentials.ts'
import { settled } from '../changes/helpers.ts'
import { sharedRecords } from '../storage/memory/records.ts'

const KEY = newSealingKey()
const SECRET = 'p4ss'

t.test('passwords of addresses are hidden however they are written', async (t) => {
  for (const source of [
    `http://u:${SECRET}@host/db`,
    `HTTPS://u:${SECRET}@host:6984/db?x=y#z`,
    `http://u@x:${SECRET}@host/db`,
    `http://u:${SECRET}@${SECRET}@host/db`,
    `http:\\\\u:${SECRET}@host/db`,
    `http:u:${SECRET}@host/db`,
    `http:///\\u:${SECRET}@host/db`,
    ` http://u:${SECRET}@host/db`,
    `ht\ntp://u:${SECRET}@host/db`,
    `http://u:${SECRET}%40@host/db`,
    `http://u:a/${SECRET}@host/db`,
    `http://u:${SECRET}@[/db`,
    `http://:${SECRET}@host/db`,
    `u:${SECRET}@host/db`,
    `//u:${SECRET}@host/db`,
  ]) {
    t.notMatch(
      JSON.stringify(maskCredentials({ source, proxy: source, target: { url: source } })),
      SECRET,
      source,
    )
  }
  for (const source of ['notes', 'a/b', 'http://host/db', 'http://u@host/a:b@c', '']) {
    t.strictSame(maskCredentials({ source }), { source })
  }
})

t.test('passwords and headers of objects are hidden', async (t) => {
  const source = {
    url: `http://u:${SECRET}@host/db`,
    headers: { Authorization: `Bearer ${SECRET}`, Odd: [SECRET], Odder: { a: SECRET } },
    auth: { basic: { username: 'anna', password: SECRET }, other: SECRET },
  }
  const masked = maskCredentials({ source })
  t.notMatch(JSON.stringify(masked), SECRET)
  t.match(masked, { source: { auth: { basic: { username: 'anna', password: '*****' } } } })
  const stored = sealCredentials({ source }, 'anna', KEY)
  t.notMatch(JSON.stringify(stored), SECRET)
  t.strictSame(unsealCredentials(stored, 'anna', KEY).source, source)
})

t.test('hidden credentials are for their owner, endpoint and proxy alone', async (t) => {
  const members = { source: `http://u:${SECRET}@host/db`, target: 'copy', proxy: `http://p:${SECRET}@proxy/` }
  const stored = sealCredentials(members, 'anna', KEY)
  t.match(unsealCredentials(stored, 'anna', KEY), members)
  // As a client writes it back that sorts members.
  const headers = { b: SECRET, a: SECRET }
  const sorted = sealCredentials({ source: { url: 'http://host/db', headers } }, 'anna', KEY)
  const back = { ...sorted, source: { headers: { a: '*****', b: '*****' }, url: 'http://host/db' } }
  t.match(unsealCredentials(sealCredentials(back, 'anna', KEY), 'anna', KEY), { source: { headers } })
  const other = { source: 'http://u:*****@other/db', proxy: 'http://p:*****@other/', target: stored.source }
  for (const [name, value] of Object.entries(other)) {
    t.throws(() => unsealCredentials({ ...stored, [name]: value }, 'anna', KEY), { code: 'forbidden' }, name)
  }
  t.throws(() => unsealCredentials(stored, 'bob', KEY), { code: 'forbidden' })
  t.throws(() => unsealCredentials(stored, 'anna', newSealingKey()), { code: 'forbidden' })
  t.throws(() => unsealCredentials(stored, 'anna', null), { code: 'forbidden' })
  for (const sealed of [
    {},
    7,
    { source: 7 },
    { source: '' },
    { source: 'AAAA' },
    { source: 'x'.repeat(100) },
  ]) {
    t.throws(() => unsealCredentials({ ...stored, sealed_credentials: sealed }, 'anna', KEY), {
      code: 'forbidden',
    })
  }
  t.throws(() => sealCredentials(members, 'anna', null), { code: 'unavailable' })
})

t.test('a new value beside a hidden one is refused', async (t) => {
  const headers = { a: SECRET, b: SECRET }
  const stored = sealCredentials({ source: { url: 'http://host/db', headers } }, 'anna', KEY)
  const mixed = { ...stored, source: { url: 'http://host/db', headers: { a: '*****', b: 'new' } } }
  t.throws(() => unsealCredentials(mixed, 'anna', KEY), { code: 'forbidden' })
})

t.test('no address takes long to hide', async (t) => {
  const long = 60_000
  for (const part of [':', '@', ':@', ' ', '/', '\\', 'a', 'a:', ' :', '\t', 'http:', '%', '?', '#']) {
    const text = part.repeat(long / part.length)
    for (const source of [
      text,
      `http:${text}`,
      `http://${text}`,
      `http://u:${text}`,
      `${text}@h`,
      `h${text}`,
    ]) {
      const begun = performance.now()
      maskCredentials({ source: { url: source, headers: { a: source } } })
      const ms = performance.now() - begun
      t.ok(ms < 500, `${JSON.stringify(source.slice(0, 12))}: ${Math.round(ms)} ms`)
    }
  }
})

t.test('nodes that start at once have one key, and hear of one that is adopted', async (t) => {
  const nodes = sharedRecords(3)
  const keys = await Promise.all(
    nodes.map((records) => SealingKey.open(records, (fault) => t.fail(String(fault)))),
  )
  const values = new Set(keys.map(({ value }) => value))
  t.equal(values.size, 1)
  t.notOk(values.has(null))
  const heard: (string | null)[] = []
  keys[1]?.onChange(() => heard.push(keys[1]?.value ?? null))
  await keys[0]?.adopt(KEY)
  await settled()
  t.same(
    keys.map(({ value }) => value),
    [KEY, KEY, KEY],
  )
  t.same(heard, [KEY])
  t.equal((await SealingKey.open(nodes[2]!, (fault) => t.fail(String(fault)))).value, KEY)
})
