import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import {
  COLLATION_VERSION,
  collationTable,
  entryOf,
  IGNORED,
  shareCollationTable,
} from '../../src/query/collation/collation-table.ts'

t.test('threads share one table', async (t) => {
  shareCollationTable()
  const { buffer } = collationTable().entries
  shareCollationTable()
  t.equal(collationTable().entries.buffer, buffer, 'it is loaded once')
  // The thread has the same memory if it sees what is written here.
  const marks = collationTable().marks
  const [first] = marks
  const table = new URL('../../src/query/collation/collation-table.ts', import.meta.url)
  const code = `
    const { parentPort } = require('node:worker_threads')
    import(${JSON.stringify(table)}).then(({ collationTable }) => {
      parentPort.postMessage(collationTable().marks[0])
    })`
  marks[0] = 42
  const thread = new Worker(code, { eval: true })
  const [seen] = await once(thread, 'message')
  marks[0] = first!
  t.equal(seen, 42)
})

t.test('each code point has an entry', async (t) => {
  const table = collationTable()
  t.match(COLLATION_VERSION, /^icu-\d+\.\d+-\d+$/)
  t.equal(entryOf(table, 0), IGNORED)
  t.equal(entryOf(table, 0x10ffff), 0, 'an unassigned code point has no entry')
  t.ok(entryOf(table, 0x4e00) < entryOf(table, 0x4e01), 'Han by radical and stroke')
  t.ok(entryOf(table, 0x3400) < entryOf(table, 0x4e2d))
})
