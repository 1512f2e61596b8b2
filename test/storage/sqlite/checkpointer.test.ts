/** When the log is brought into the file: not while somebody waits for a commit. */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Checkpointer } from '../../../src/storage/sqlite/database-access.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put } from '../conformance/edits.ts'

const CARRY = 'PRAGMA wal_checkpoint(PASSIVE)'
const PAGE_BYTES = 8192

/** A carrier over a log of so many pages, and how often it was carried. */
function carrierOver(pages: number, carry: () => void = () => undefined) {
  const log = { pages, carried: 0 }
  const connection = {
    logPages: () => log.pages,
    checkpointPassively: () => {
      log.carried += 1
      carry()
    },
  }
  return { log, carrier: new Checkpointer(connection, { read: (work) => work() }) }
}

async function turns(count: number): Promise<void> {
  for (let n = 0; n < count; n++) await turn()
}

t.test(
  'a long log is carried once, when the turn that answers and the one that sends are over',
  async (t) => {
    const { log, carrier } = carrierOver(1000)
    carrier.committed()
    await turn()
    carrier.committed()
    t.equal(log.carried, 0)
    await turns(3)
    t.equal(log.carried, 1)
  },
)

t.test('a short log is left', async (t) => {
  const { log, carrier } = carrierOver(999)
  carrier.committed()
  await turns(4)
  t.equal(log.carried, 0)
})

t.test('a disk that fails is no fault of a write, and the next commit tries again', async (t) => {
  const { log, carrier } = carrierOver(1000, () => {
    throw new Error('the disk has failed')
  })
  for (let n = 1; n <= 2; n++) {
    carrier.committed()
    await turns(4)
    t.equal(log.carried, n)
  }
})

/** A database, and what SQLite was asked for when each of its commits began and ended. */
async function notes(t: Test) {
  const said: string[] = []
  const dataDir = await temporaryFolder(t)
  const engine = sqliteEngine({ dataDir, onOperation: (operation) => said.push(operation) })
  await (await engine.openCatalog()).create('notes')
  t.teardown(() => engine.close())
  return {
    store: await engine.openDatabase('notes'),
    said,
    log: join(dataDir, 'databases', 'notes.sqlite-wal'),
  }
}

t.test('writes are answered before their log is carried, and the log stays bounded', async (t) => {
  const { store, said, log } = await notes(t)
  const body = JSON.stringify({ text: 'a'.repeat(100_000) })
  for (let n = 0; n < 300; n++) {
    const before = said.filter((operation) => operation === CARRY).length
    await store.updateDocs([put(`doc${n}`, body)])
    t.equal(said.filter((operation) => operation === CARRY).length, before, 'nobody has waited for it')
    await turns(4)
  }
  t.ok(said.includes(CARRY))
  t.ok(statSync(log).size < 2000 * PAGE_BYTES, `${statSync(log).size} bytes`)
})
