import fc from 'fast-check'
import t from 'tap'
import {
  checkDatabaseName,
  checkDocId,
  databaseFileName,
  databaseOfFileName,
  isDesignId,
  isLocalId,
  newUuid,
} from '../../src/core/ids.ts'

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
  t.doesNotThrow(() => checkDatabaseName('a'.repeat(240)))
  t.throws(() => checkDatabaseName('a'.repeat(241)), { code: 'database_name_too_long' })
  t.doesNotThrow(() => checkDatabaseName(`a${'/'.repeat(79)}`))
  t.throws(() => checkDatabaseName(`a${'/'.repeat(80)}`), { code: 'database_name_too_long' })
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

t.test('a name that is a device somewhere is none as a file', async (t) => {
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

t.test('a file that no database can have has none', async (t) => {
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
  for (const id of ids) t.equal(checkDocId(id, 100), id)
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
    t.throws(() => checkDocId(id, 100), { code: 'illegal_docid', reason }, String(id))
  }
  t.equal(checkDocId('ä'.repeat(50), 100).length, 50, 'the limit is in bytes and may be reached')
})

t.test('design and local ids are told by their prefix', async (t) => {
  t.equal(isDesignId('_design/a'), true)
  t.equal(isDesignId('_designa'), false)
  t.equal(isLocalId('_local/a'), true)
  t.equal(isLocalId('local/a'), false)
})

t.test('new ids are 32 hex digits of version 7', async (t) => {
  t.match(newUuid(), /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/)
  t.match(newUuid(0x0123456789ab), /^0123456789ab7/)
})

t.test('new ids differ, and those made later stand behind those made earlier', async (t) => {
  const ids = Array.from({ length: 1000 }, (_, ms) => newUuid(1_700_000_000_000 + ms))
  t.same([...ids].sort(), ids)
  t.equal(new Set(Array.from({ length: 1000 }, () => newUuid(1))).size, 1000)
})
