/** Checksums of rows: one changed bit of a row's header makes bytes of a text in SQLite, and a text of bytes. */
import t from 'tap'
import {
  contentChecksum,
  localChecksum,
  purgeChecksum,
  rowChecksum,
  valueChecksum,
} from '../../src/storage/checksum.ts'

type Row = Readonly<Record<string, string | number>>

/** Rows with texts, and their checksums. */
const SUMMED: Readonly<Record<string, readonly [row: Row, sum: (row: never) => number]>> = {
  'a revision': [{ num: 1, rev: '1-a', deleted: 0, attachments: 0, body: '{"a":1}' }, contentChecksum],
  'a _local document': [{ id: '_local/a', rev: '0-1', body: '{"a":1}' }, localChecksum],
  'a purge': [{ seq: 7, id: 'a', revs: '["1-a"]' }, purgeChecksum],
  'a value': [
    { key: 'limit', value: '7' },
    ({ key, value }: { key: string; value: string }) => valueChecksum(key, value),
  ],
  'a security object': [{ body: '{}' }, ({ body }: { body: string }) => rowChecksum(body)],
  'a record': [{ kind: 'k', key: 'a', value: '{}' }, (row: object) => rowChecksum(...Object.values(row))],
}

for (const [name, [row, sum]] of Object.entries(SUMMED)) {
  const texts = Object.entries(row).filter(([, value]) => typeof value === 'string')
  for (const [column, text] of texts) {
    t.test(`${name} whose ${column} has become bytes, or the bytes a text`, async (t) => {
      const of = sum as (row: object) => number
      const right = of(row)
      t.ok(Number.isInteger(right))
      t.not(of({ ...row, [column]: Buffer.from(String(text)) }), right)
    })
  }
}
