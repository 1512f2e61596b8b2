/** The address rule: a table of addresses, all faults of each, and what must hold of any. */
import { readFile } from 'node:fs/promises'
import fc from 'fast-check'
import t from 'tap'
import {
  ADDRESS_FAULTS,
  type AddressFaultCode,
  type AddressParts,
  formatAddress,
  parseAddress,
} from '../../src/core/address.ts'
import { networkOf } from '../../src/core/network.ts'

const PLACE = { scheme: 'https', host: 'h', port: 443, database: 'n' } as const

/** What is given, and what is read. */
const GOOD: readonly (readonly [string, AddressParts])[] = [
  ['https://h:443/n', PLACE],
  ['http://h:80/n', { ...PLACE, scheme: 'http', port: 80 }],
  ['HTTPS://H:443/n', PLACE],
  ['  https://h:443/n\r\n', PLACE],
  ['https://h:00443/n', PLACE],
  ['http://localhost:5984/my-notes', { scheme: 'http', host: 'localhost', port: 5984, database: 'my-notes' }],
  ['https://anna:secret@h:443/n', { ...PLACE, username: 'anna', password: 'secret' }],
  ['https://anna:p%40ss%3A@h:443/n', { ...PLACE, username: 'anna', password: 'p@ss:' }],
  ['https://anna%40home:p%2F%3f%23%25@h:443/n', { ...PLACE, username: 'anna@home', password: 'p/?#%' }],
  ['https://j%C3%B6rg:%F0%9F%94%91@h:443/n', { ...PLACE, username: 'jörg', password: '🔑' }],
  ["https://a+b:!$&'()*,;=~._-@h:443/n", { ...PLACE, username: 'a+b', password: "!$&'()*,;=~._-" }],
  ['https://notes.example.com:6984/n', { ...PLACE, host: 'notes.example.com', port: 6984 }],
  ['https://notes.example.com.:443/n', { ...PLACE, host: 'notes.example.com.' }],
  ['http://my_server-1:5984/n', { ...PLACE, scheme: 'http', host: 'my_server-1', port: 5984 }],
  ['https://bücher.example:443/n', { ...PLACE, host: 'xn--bcher-kva.example' }],
  ['http://192.168.1.10:5984/n', { ...PLACE, scheme: 'http', host: '192.168.1.10', port: 5984 }],
  ['http://[::1]:5984/n', { ...PLACE, scheme: 'http', host: '::1', port: 5984 }],
  ['https://[2001:DB8:0:0::1]:443/n', { ...PLACE, host: '2001:db8::1' }],
  ['https://u:p@[2001:db8::1]:443/n', { ...PLACE, username: 'u', password: 'p', host: '2001:db8::1' }],
  ['https://[::ffff:192.0.2.1]:443/n', { ...PLACE, host: '::ffff:c000:201' }],
  ['https://h:1/n', { ...PLACE, port: 1 }],
  ['https://h:65535/n', { ...PLACE, port: 65_535 }],
  ['https://h:443/a0_$()+-', { ...PLACE, database: 'a0_$()+-' }],
  ['https://h:443/shared%2fbooks', { ...PLACE, database: 'shared/books' }],
  ['https://h:443/%6e', PLACE],
  // Below a path of a site, the last segment is the database.
  ['https://h:443/couch/n', { ...PLACE, prefix: '/couch' }],
  [
    'https://u:p@h:443/My.Site/~c-1/a%2fb',
    { ...PLACE, username: 'u', password: 'p', prefix: '/My.Site/~c-1', database: 'a/b' },
  ],
]

const BAD: readonly (readonly [string, ...AddressFaultCode[]])[] = [
  ['', 'empty'],
  [' \n', 'empty'],
  [`https://h:443/${'n'.repeat(4096)}`, 'too_long'],
  ['h:443/n', 'scheme'],
  ['//h:443/n', 'scheme'],
  ['ws://h:443/n', 'scheme'],
  ['obsidian://h:443/n', 'scheme'],
  ['https:/h:443/n', 'scheme'],
  ['https://h/n', 'port_missing'],
  ['https://h:/n', 'port_missing'],
  ['http://h/n', 'port_missing'],
  ['https://[::1]/n', 'port_missing'],
  ['https://h:0/n', 'port'],
  ['https://h:65536/n', 'port'],
  ['https://h:+443/n', 'port'],
  ['https://h:443a/n', 'port'],
  ['https://h:443:443/n', 'port'],
  ['https://:443/n', 'host_missing'],
  ['https://u:p@:443/n', 'host_missing'],
  ['https://ho st:443/n', 'host'],
  ['https://-h:443/n', 'host'],
  ['https://a..b:443/n', 'host'],
  ['https://h%2e:443/n', 'host'],
  ['https://h\\x:443/n', 'host'],
  ['https://127.1:443/n', 'host'],
  ['https://0x7f.0.0.1:443/n', 'host'],
  ['https://1.2.3.4.5:443/n', 'host'],
  ['https://[h]:443/n', 'host'],
  ['https://[::1%25eth0]:443/n', 'host'],
  ['https://[1:2]:443/n', 'host'],
  ['https://::1:5984/n', 'host_brackets'],
  ['https://2001:db8::1/n', 'host_brackets'],
  ['https://anna@h:443/n', 'password'],
  ['https://anna:@h:443/n', 'password'],
  ['https://:secret@h:443/n', 'username'],
  ['https://@h:443/n', 'username', 'password'],
  ['https://anna:p@ss@h:443/n', 'credentials'],
  ['https://anna:p:ss@h:443/n', 'credentials'],
  ['https://anna:p/ss@h:443/n', 'credentials'],
  ['https://anna:p?#ss@h:443/n', 'credentials'],
  ['https://anna:p ss@h:443/n', 'credentials'],
  ['https://jörg:p@h:443/n', 'credentials'],
  ['https://anna:100%@h:443/n', 'percent'],
  ['https://anna:%zz@h:443/n', 'percent'],
  ['https://anna:%ff@h:443/n', 'percent'],
  ['https://an%3Ana:p@h:443/n', 'username_colon'],
  ['https://anna:p%00@h:443/n', 'control'],
  ['https://h:443', 'database_missing'],
  ['https://h:443/', 'database_missing'],
  ['https://h:443?n', 'database_missing', 'query'],
  ['https://h:443/n/', 'database_slash'],
  ['https://h:443//n', 'path'],
  ['https://h:443/couch//n', 'path'],
  ['https://h:443/../n', 'path'],
  ['https://h:443/a%2Fb/n', 'path'],
  ['https://h:443/couch/n/', 'database_slash'],
  ['https://h:443/n/_changes', 'database'],
  ['https://h:443/Notes', 'database'],
  ['https://h:443/_users', 'database'],
  ['https://h:443/9n', 'database'],
  ['https://h:443/n%', 'database'],
  ['https://h:443/n n', 'database'],
  ['https://h:443/n?feed=live', 'query'],
  ['https://h:443/n#top', 'query'],
  // All at once.
  [
    'anna:p@ss@/Notes/',
    'scheme',
    'credentials',
    'host_missing',
    'port_missing',
    'database_slash',
    'database',
  ],
  ['ftp://anna@ho st:0/?', 'scheme', 'password', 'port', 'host', 'database_missing', 'query'],
]

t.test('addresses that are right', async (t) => {
  for (const [text, parts] of GOOD) {
    const result = parseAddress(text)
    t.ok(result.ok, text)
    if (!result.ok) continue
    const { url, text: written, ...read } = result.address
    t.same(read, parts, text)
    const { username: _, password: __, ...place } = parts
    t.equal(url, formatAddress(place), text)
    t.equal(written, formatAddress(parts), text)
  }
})

t.test('all faults are reported at once', async (t) => {
  for (const [text, ...codes] of BAD) {
    const result = parseAddress(text)
    t.same(
      result.ok ? [] : result.faults.map(({ code }) => code).sort(),
      [...codes].sort(),
      text.slice(0, 80),
    )
  }
  t.ok(GOOD.length + BAD.length >= 30)
})

t.test(
  'every fault has an address that has it, and says in sentences what it is and how to mend it',
  async (t) => {
    const tried = new Set(BAD.flatMap(([, ...codes]) => codes))
    t.same(new Set(Object.keys(ADDRESS_FAULTS)), new Set([...tried, 'mobile_http']))
    for (const texts of Object.values(ADDRESS_FAULTS)) for (const text of texts) t.match(text, /^[A-Z].*\.$/)
  },
)

t.test('the returned address has the port, even the default one', async (t) => {
  const result = parseAddress('https://anna:p%40ss%3A@H:443/shared%2Fbooks')
  t.match(result, {
    address: { url: 'https://h:443/shared%2Fbooks', text: 'https://anna:p%40ss%3A@h:443/shared%2Fbooks' },
  })
})

t.test('an http address for a phone is refused, along with all other faults', async (t) => {
  t.ok(parseAddress('https://h:443/n', { mobile: true }).ok)
  const codes = (text: string) => {
    const result = parseAddress(text, { mobile: true })
    return result.ok ? [] : result.faults.map(({ code }) => code)
  }
  t.same(codes('http://h:80/n'), ['mobile_http'])
  t.same(codes('http://h/n'), ['port_missing', 'mobile_http'])
  t.same(codes('h:5984/n'), ['scheme'])
})

t.test('settee/address exports it, and it runs in browsers: it imports nothing of Node.js', async (t) => {
  const root = new URL('../../', import.meta.url)
  const { exports } = JSON.parse(await readFile(new URL('package.json', root), 'utf8'))
  t.equal(exports['./address'].default, './dist/core/address.js')
  const imported = new Set(['./address.ts'])
  for (const file of imported) {
    const text = await readFile(new URL(file, new URL('src/core/', root)), 'utf8')
    for (const [, name = ''] of text.matchAll(/^(?:import|\}) .*from '(.+)'$/gm)) imported.add(name)
    t.notMatch(text, /\b(?:Buffer|process)\b/)
  }
  t.same([...imported], ['./address.ts'])
})

const credential = fc
  .string({ unit: 'binary', minLength: 1, maxLength: 40 })
  .filter((text) => !/\p{Cc}/u.test(text))
const host = fc.oneof(
  fc.domain(),
  fc.ipV4(),
  fc.constantFrom('localhost', '::1', 'fe80::1:2', '2001:db8:1:2:3:4:5:6', 'my_server'),
)
const parts: fc.Arbitrary<AddressParts> = fc
  .record({
    scheme: fc.constantFrom('http' as const, 'https' as const),
    host: host.map((name) => name.toLowerCase()),
    port: fc.integer({ min: 1, max: 65_535 }),
    database: fc.stringMatching(/^[a-z][a-z0-9_$()+/-]{0,30}$/),
    prefix: fc.option(fc.stringMatching(/^(?:\/[a-zA-Z0-9_~-]{1,9}){1,3}$/)),
    credentials: fc.option(
      fc.record({ username: credential.filter((name) => !name.includes(':')), password: credential }),
    ),
  })
  .map(({ credentials, prefix, ...place }) => ({
    ...place,
    ...(prefix !== null && { prefix }),
    ...credentials,
  }))

t.test('formatted addresses parse back to the same parts', async () => {
  fc.assert(
    fc.property(parts, (parts) => {
      const text = formatAddress(parts)
      const result = parseAddress(text)
      if (!result.ok) throw new Error(JSON.stringify(result.faults))
      const { url: _, text: written, ...read } = result.address
      return written === text && JSON.stringify(sorted(read)) === JSON.stringify(sorted(parts))
    }),
    { numRuns: 2000 },
  )
})

t.test('URL agrees on accepted addresses, except for default ports', async () => {
  fc.assert(
    fc.property(parts, (parts) => {
      const url = new URL(formatAddress(parts))
      const { username = '', password = '', port } = parts
      const usual = parts.scheme === 'http' ? 80 : 443
      return (
        decodeURIComponent(url.username) === username &&
        decodeURIComponent(url.password) === password &&
        Number(url.port || usual) === port &&
        decodeURIComponent(url.pathname) === `${parts.prefix ?? ''}/${parts.database}`
      )
    }),
  )
})

t.test('no fault repeats a secret, wherever it is in the address', async () => {
  const secret = fc.stringMatching(/^[A-Z0-9]{12}$/)
  const before = fc.constantFrom(
    'https://anna:',
    'https://',
    'https://h:',
    'https://h:443/',
    'https://h:1/n?',
    '',
    'h:1/',
  )
  const behind = fc.constantFrom('@h:443/n', '@', '/', ':', '@@h', '%', '/n@h:1', ' @h:443/n', '')
  fc.assert(
    fc.property(before, secret, behind, (before, secret, behind) => {
      const result = parseAddress(`${before}${secret}${behind}`)
      return result.ok || !JSON.stringify(result.faults).includes(secret)
    }),
  )
})

t.test('any text is answered, and quickly', async () => {
  fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => 'ok' in parseAddress(text)))
  const began = process.cpuUsage().user
  for (const part of ['a.', '%', ':', '@', '/', '[', 'a%4', '1:'])
    parseAddress(`https://${part.repeat(1300)}`)
  if (process.cpuUsage(undefined).user - began > 2_000_000) throw new Error('an address took seconds')
})

function sorted(parts: AddressParts): [string, unknown][] {
  return Object.entries(parts).sort(([a], [b]) => (a < b ? -1 : 1))
}

t.test('an IPv6 address counts as its network', async (t) => {
  const cases: [address: string, network: string][] = [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::9', '2001:db8:1:2::/64'],
    ['2001:db8::9', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
    ['1:2:3:4:5:6:192.0.2.1', '1:2:3:4::/64'],
    ['nonsense', 'nonsense'],
    ['', ''],
  ]
  for (const [address, network] of cases) t.equal(networkOf(address), network, address)
})
