import fc from 'fast-check'
import t from 'tap'
import { compareUtf8 } from '../../src/core/bytes.ts'
import {
  checkDatabaseName,
  checkDocId,
  databaseFileName,
  databaseOfFileName,
  isDesignId,
  isLocalId,
  newUuid,
} from '../../src/core/ids.ts'
import { checkPartition, partitionIds } from '../../src/core/partitions.ts'
import { DEFAULT_UUID_RULES, type UuidRules, uuidMaker } from '../../src/core/uuids.ts'

const RULES = { maxBytes: 100, partitioned: false }

const LEGAL = [
  'a',
  'con',
  'lpt1',
  'a/con',
  'notes',
  'a0_$()+-/z',
  'foo/_users',
  'foo/_replicator',
  'a/b/c',
  '_users',
  '_replicator',
]
const SYSTEM = ['_global_changes', '_dbs', '_nodes', '_metadata']
const ILLEGAL = [
  '',
  'A',
  '0a',
  '_x',
  'a.b',
  'a b',
  'aB',
  'ä',
  'a\n',
  'a%2f',
  '/a',
  '/_users',
  '_x/_users',
  'A/_users',
  '_all_dbs',
  '..',
]

t.test('database names that may be made', async (t) => {
  for (const name of [...LEGAL, ...SYSTEM]) t.doesNotThrow(() => checkDatabaseName(name), name)
})

t.test('database names that may not be made say which characters are allowed', async (t) => {
  for (const name of ILLEGAL) {
    t.throws(
      () => checkDatabaseName(name),
      {
        code: 'illegal_database_name',
        reason: `Name: '${name}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter.`,
      },
      JSON.stringify(name),
    )
  }
})

t.test('a name is as long as its file may be, slashes counting three', async (t) => {
  t.doesNotThrow(() => checkDatabaseName('a'.repeat(229)))
  t.throws(() => checkDatabaseName('a'.repeat(230)), { code: 'database_name_too_long' })
  t.doesNotThrow(() => checkDatabaseName(`a${'/'.repeat(76)}`))
  t.throws(() => checkDatabaseName(`a${'/'.repeat(77)}`), { code: 'database_name_too_long' })
})

t.test('a refusal repeats a bounded part of the name', async (t) => {
  t.throws(() => checkDatabaseName('A'.repeat(1_000_000)), { message: /^.{300,600}$/ })
})

t.test('every legal name comes back from its file name', async () => {
  const names = fc.stringMatching(/^[a-z][a-z0-9_$()+/-]{0,60}$/)
  fc.assert(
    fc.property(names, (name) => {
      const file = databaseFileName(name)
      return !file.includes('/') && databaseOfFileName(file) === name
    }),
  )
})

t.test('a database named like a Windows device gets another file name', async (t) => {
  for (const name of ['con', 'nul', 'com1', 'lpt9']) {
    const file = databaseFileName(name)
    t.match(file, /^%[67][0-9A-F]/)
    t.equal(databaseOfFileName(file), name)
  }
})

t.test('different names have different files', async () => {
  const names = fc.stringMatching(/^[a-c][a-c/]{0,4}$/)
  fc.assert(fc.property(names, names, (a, b) => (a === b) === (databaseFileName(a) === databaseFileName(b))))
})

t.test('a file name that no database can have belongs to no database', async (t) => {
  for (const file of [
    '',
    'A',
    'a.b',
    '%2F',
    'a%2f',
    'a/b',
    '_x',
    '.hidden',
    'a%252F',
    'con',
    '%61',
    '%6Eotes',
    '%63On',
  ]) {
    t.equal(databaseOfFileName(file), null, file)
  }
})

t.test('document ids that may be written', async (t) => {
  const ids = [
    'a',
    ' ',
    'ä',
    '\u{1f600}',
    'a/b',
    '0',
    '_design/x',
    '_design/x/y',
    '_local/a',
    '_local/a/b',
    'a\0b',
  ]
  for (const id of ids) t.equal(checkDocId(id, RULES), id)
})

t.test('document ids that may not be written', async (t) => {
  const cases: [id: unknown, reason: string][] = [
    [1, 'Document id must be a string'],
    [null, 'Document id must be a string'],
    ['', 'Document id must not be empty'],
    ['\ud800', 'Document id must be valid UTF-8'],
    ['_x', 'Only reserved document ids may start with underscore.'],
    ['_', 'Only reserved document ids may start with underscore.'],
    ['_design', 'Only reserved document ids may start with underscore.'],
    ['_localx/a', 'Only reserved document ids may start with underscore.'],
    ['_design/', 'Illegal document id `_design/`'],
    ['_local/', 'Illegal document id `_local/`'],
    ['ä'.repeat(51), 'Document id is too long'],
  ]
  for (const [id, reason] of cases) {
    t.throws(() => checkDocId(id, RULES), { code: 'illegal_docid', reason }, String(id))
  }
  t.equal(checkDocId('ä'.repeat(50), RULES).length, 50, 'the limit is in bytes and may be reached')
})

t.test('the prefix tells design and local ids apart', async (t) => {
  t.equal(isDesignId('_design/a'), true)
  t.equal(isDesignId('_designa'), false)
  t.equal(isLocalId('_local/a'), true)
  t.equal(isLocalId('local/a'), false)
})

t.test('new ids are 32 hex digits of version 7', async (t) => {
  t.match(newUuid(), /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/)
  t.match(newUuid(0x0123456789ab), /^0123456789ab7/)
})

t.test('new ids differ, and later ones sort after earlier ones', async (t) => {
  const ids = Array.from({ length: 1000 }, (_, ms) => newUuid(1_700_000_000_000 + ms))
  t.same([...ids].sort(), ids)
  t.equal(new Set(Array.from({ length: 1000 }, () => newUuid(1))).size, 1000)
})

// The algorithms of section `[uuids]`; protocol.md 15.

const make = (rules: Partial<UuidRules>, lane: 0 | 1 = 0, now?: () => number) =>
  uuidMaker(() => ({ ...DEFAULT_UUID_RULES, ...rules }), lane, now)
const many = (next: () => string, count = 5000) => Array.from({ length: count }, next)

t.test('each algorithm has its form, and no id comes twice', async (t) => {
  const forms: [rules: Partial<UuidRules>, form: RegExp][] = [
    [{}, /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/],
    [{ algorithm: 'uuid_v4' }, /^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$/],
    [
      { algorithm: 'uuid_v4', format: 'rfc9562' },
      /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    ],
    [{ format: 'base_36' }, /^0[0-9a-z]{24}$/],
    [{ algorithm: 'random', format: 'rfc9562' }, /^[0-9a-f]{32}$/],
    [{ algorithm: 'sequential' }, /^[0-9a-f]{32}$/],
    [{ algorithm: 'utc_random' }, /^[0-9a-f]{32}$/],
    [{ algorithm: 'utc_id', utcIdSuffix: '@a' }, /^[0-9a-f]{14}@a$/],
  ]
  for (const [rules, form] of forms) {
    const ids = many(make(rules))
    t.ok(
      ids.every((id) => form.test(id)),
      `${rules.algorithm} ${ids[0]}`,
    )
    t.equal(new Set(ids).size, ids.length)
  }
})

t.test(
  'sequential ids grow by small steps, and the prefix is another when the number is used up',
  async (t) => {
    const ids = many(make({ algorithm: 'sequential' }), 20_000)
    const prefixes = [...new Set(ids.map((id) => id.slice(0, 26)))]
    t.ok(prefixes.length > 1 && prefixes.length < 5, String(prefixes.length))
    const first = ids.filter((id) => id.startsWith(prefixes[0] as string))
    t.same([...first].sort(), first)
  },
)

t.test('the time of utc ids goes on when the clock does not, and two lanes never meet', async (t) => {
  const lanes = [0, 1].map((lane) => many(make({ algorithm: 'utc_id' }, lane as 0 | 1, () => 345)))
  t.equal(new Set(lanes.flat()).size, 10_000)
  t.same(lanes[0]?.slice(0, 2), ['00000000000158', '0000000000015a'])
  t.same([...(lanes[0] ?? [])].sort(), lanes[0])
  let now = 1000
  const next = make({ algorithm: 'utc_id' }, 0, () => now)
  t.equal(next(), (1000).toString(16).padStart(14, '0'))
  now = 10
  t.equal(next(), (1002).toString(16).padStart(14, '0'), 'a clock that was set back')
})

t.test('document ids of a partitioned database', async (t) => {
  const rules = { maxBytes: 100, partitioned: true }
  for (const id of [
    'a:1',
    'a:b:c',
    'a::x',
    'a b:c',
    'a/b:c',
    'ä:ö',
    'a\0b:c',
    'a:_local/x',
    '_design/x',
    '_local/x',
  ]) {
    t.equal(checkDocId(id, rules), id)
  }
  const cases: [id: string, code: string, reason: string][] = [
    ['plain', 'illegal_docid', 'Doc id must be of form partition:id'],
    ['', 'illegal_docid', 'Document id must not be empty'],
    ['a:', 'illegal_docid', 'Document id must not be empty'],
    [':x', 'illegal_partition', 'Partition must not be empty'],
    ['_x:1', 'illegal_docid', 'Only reserved document ids may start with underscore.'],
    ['a:_x', 'illegal_docid', 'Only reserved document ids may start with underscore.'],
    [`a:${'x'.repeat(99)}`, 'illegal_docid', 'Document id is too long'],
  ]
  for (const [id, code, reason] of cases) t.throws(() => checkDocId(id, rules), { code, reason }, id)
})

t.test('names of partitions', async (t) => {
  for (const name of ['a', 'A b', 'a/b', 'ä', 'x_', '1;2']) t.equal(checkPartition(name), name)
  const cases: [name: unknown, reason: string][] = [
    [1, 'Partition must be a string'],
    [null, 'Partition must be a string'],
    ['', 'Partition must not be empty'],
    ['_x', 'Partition must not start with an underscore'],
    ['\ud800', 'Partition must be valid UTF-8'],
    ['a:b', 'Partition must not contain a colon'],
  ]
  for (const [name, reason] of cases) {
    t.throws(() => checkPartition(name), { code: 'illegal_partition', reason }, String(name))
  }
})

t.test('the ids of a partition are those between its first and its last', async (t) => {
  const id = fc.string({ unit: 'binary', minLength: 1, maxLength: 6 })
  const check = (partition: string, other: string) => {
    const { first, last } = partitionIds(partition)
    const isBetween = compareUtf8(first, other) <= 0 && compareUtf8(other, last) < 0
    t.equal(isBetween, other.startsWith(first))
  }
  fc.assert(fc.property(id, id, fc.boolean(), (a, b, own) => check(a, own ? `${a}:${b}` : `${a}${b}`)))
})
