import fc from 'fast-check'
import t from 'tap'
import { compareUtf8 } from '../../src/core/bytes.ts'
import {
  compareRevIds,
  formatRev,
  newRevId,
  normalizeRevId,
  parseRev,
  type RevContent,
} from '../../src/revisions/rev.ts'

const hex = '967a00dff5e02add41819138abb3284d'

t.test('a revision is read as protocol.md 2.3 says', (t) => {
  const table: [text: string, pos: number, id: string][] = [
    ['1-abc', 1, 'abc'],
    ['+2-abc', 2, 'abc'],
    ['003-abc', 3, 'abc'],
    ['0-1', 0, '1'],
    ['1-', 1, ''],
    ['4-a-b-', 4, 'a-b-'],
    [`1-${hex}`, 1, hex],
    [`1-${hex.toUpperCase()}`, 1, hex],
    ['1-ABC', 1, 'ABC'],
    ['1-😀', 1, '😀'],
    [`1-${'x'.repeat(512)}`, 1, 'x'.repeat(512)],
    [`${Number.MAX_SAFE_INTEGER}-a`, Number.MAX_SAFE_INTEGER, 'a'],
  ]
  for (const [text, pos, id] of table) t.strictSame(parseRev(text), { pos, id }, text.slice(0, 50))
  t.end()
})

t.test('invalid revisions are refused', (t) => {
  const table: unknown[] = [
    '',
    '1',
    '-a',
    '-1-a',
    'a-1',
    '1.5-a',
    '1e3-a',
    ' 1-a',
    '1 -a',
    '++1-a',
    '0x1-a',
    '٣-a',
    '9007199254740992-a',
    `1-${'g'.repeat(32)}`,
    `1-${'x'.repeat(513)}`,
    '1-\ud800',
    '1-a\udc00b',
    null,
    undefined,
    1,
    {},
    ['1-a'],
  ]
  const refused = { code: 'invalid_rev', status: 400, reason: 'Invalid rev format' }
  for (const text of table) t.throws(() => parseRev(text), refused, String(text).slice(0, 50))
  t.end()
})

t.test('a revision is written back as it was read', (t) => {
  t.equal(formatRev(3, 'a-b'), '3-a-b')
  t.end()
})

t.test('ids are ordered by their UTF-8 bytes', (t) => {
  const sorted = ['0', '0a', 'A', 'B', 'a', 'aa', 'b', 'é', '\ud7ff', '\ue000', '\uffff', '😀', '😁', '😁a']
  for (const [i, a] of sorted.entries()) {
    for (const [j, b] of sorted.entries())
      t.equal(Math.sign(compareUtf8(a, b)), Math.sign(i - j), `${a} ${b}`)
  }
  t.end()
})

t.test('ids of different forms are ordered as CouchDB 3.5 orders them', (t) => {
  const hex = (start: string) => start.padEnd(32, '0')
  // The answer of CouchDB 3.5.0 to seven conflicting first revisions, the winner last.
  const sorted = ['', '9', 'zz', hex('96'), 'é', `c3a9${'a'.repeat(28)}`, hex('ff')]
  t.strictSame([...sorted].reverse().sort(compareRevIds), sorted)
  t.end()
})

t.test('ids are ordered by the bytes that CouchDB stores', (t) => {
  const hex = fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: 32, maxLength: 32 })
  // Texts whose bytes often begin like those of the digits.
  const text = fc.oneof(
    hex.map((id) => Buffer.from(id.slice(0, 8), 'hex').toString('utf8')),
    fc.string({ unit: 'binary', maxLength: 40 }),
    fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), maxLength: 40 }),
  )
  const id = fc.oneof(
    hex,
    text.filter((each) => normalizeRevId(each) === each),
  )
  // Two digits for each byte, so that JavaScript's order of ASCII texts is that of the bytes.
  const digits = (each: string) => (each.length === 32 ? each : Buffer.from(each).toString('hex'))
  fc.assert(
    fc.property(id, id, (a, b) => {
      const expected = digits(a) < digits(b) ? -1 : Number(digits(a) > digits(b))
      return Math.sign(compareRevIds(a, b)) === expected
    }),
    { numRuns: 5000 },
  )
  t.end()
})

t.test('a new id is a digest of everything that makes the revision, and of nothing else', (t) => {
  const att = { name: 'a', type: 'text/plain', digest: 'md5-x' }
  const base = { parent: '1-a', deleted: false, body: '{"a":1}', attachments: [att] }
  const id = newRevId(base)
  t.match(id, /^[0-9a-f]{32}$/)
  t.equal(newRevId({ ...base, attachments: [{ ...att }] }), id)

  const others = [
    { ...base, parent: null },
    { ...base, parent: '2-a' },
    { ...base, deleted: true },
    { ...base, body: '{"a":2}' },
    { ...base, attachments: [] },
    { ...base, attachments: [att, { ...att, name: 'b' }] },
    { ...base, attachments: [{ ...att, name: 'b' }] },
    { ...base, attachments: [{ ...att, type: 'text/html' }] },
    { ...base, attachments: [{ ...att, digest: 'md5-y' }] },
    { ...base, attachments: [{ name: 'at', type: 'ext/plain', digest: 'md5-x' }] },
  ]
  const ids = new Set([id, ...others.map(newRevId)])
  t.equal(ids.size, others.length + 1, 'each difference shows')
  t.end()
})

t.test('the id of a revision never changes between versions, since other servers hold it', (t) => {
  const content = { parent: null, deleted: false, body: '{}', attachments: [] }
  t.equal(newRevId(content), 'c74c5963c77e42ddf4eecedfee0fb15b')
  t.end()
})

t.test('the order in which attachments are named does not enter the id', (t) => {
  const [a, b] = ['a', 'b'].map((name) => ({ name, type: 't', digest: 'd' })) as [never, never]
  const edit = { parent: null, deleted: false, body: '{}' }
  t.equal(newRevId({ ...edit, attachments: [a, b] }), newRevId({ ...edit, attachments: [b, a] }))
  t.end()
})

const text = fc.string({ unit: 'binary', maxLength: 8 })
const id = fc.string({ unit: 'binary', minLength: 1, maxLength: 8 })

t.test('ids compare as their bytes do', async () => {
  fc.assert(
    fc.property(text, text, (a, b) => {
      return Math.sign(compareUtf8(a, b)) === Buffer.compare(Buffer.from(a), Buffer.from(b))
    }),
    { numRuns: 3000 },
  )
})

t.test('formatted revisions parse back to the same values', async () => {
  fc.assert(
    fc.property(fc.maxSafeNat(), id, (pos, id) => {
      const rev = parseRev(formatRev(pos, id))
      return rev.pos === pos && rev.id === id
    }),
  )
})

t.test('different contents have different ids, however their texts run together', async () => {
  const short = fc.string({ unit: fc.constantFrom('a', '1', ':'), maxLength: 3 })
  const attachments = fc.uniqueArray(fc.record({ name: short, type: short, digest: short }), {
    maxLength: 2,
    selector: (one) => one.name,
  })
  const parent = fc.option(short.map((id) => `1-${id}`))
  const content = fc.record({ parent, deleted: fc.boolean(), body: short, attachments })
  const plain = (one: RevContent) =>
    JSON.stringify([
      one.parent,
      one.deleted,
      one.body,
      one.attachments.map((a) => [a.name, a.type, a.digest]).sort(),
    ])
  fc.assert(
    fc.property(content, content, (a, b) => (newRevId(a) === newRevId(b)) === (plain(a) === plain(b))),
    { numRuns: 5000 },
  )
})
