/** What a standby records of its primary, and a promotion that a crash interrupts at each write. */
import { pino } from 'pino'
import t from 'tap'
import type { Config } from '../../src/config/config.ts'
import { readServer } from '../../src/replication/requests/replication-request.ts'
import { Standby } from '../../src/standby/standby.ts'
import { standbyFacts } from '../../src/standby/standby-health.ts'
import { StandbyRecords } from '../../src/standby/standby-records.ts'
import type { RecordWrite } from '../../src/storage/records.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { MemoryRecords } from '../storage/memory/records.ts'

class FailingRecords extends MemoryRecords {
  readonly #fail: () => void

  /** @param fail throws to refuse a write */
  constructor(fail: () => void) {
    super()
    this.#fail = fail
  }

  override async writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    this.#fail()
    return super.writeRecords(writes)
  }
}

const FOLLOWED = {
  first: readServer('http://admin:secret@primary:5984'),
  uuid: 'u1',
  reason: null,
  acceptsOthers: false,
  updatesSeq: null,
  syncedAt: 1000,
  settings: [],
}

async function standbyOver(store: MemoryRecords, adopted: string[]) {
  const databases = { adoptUuid: async (uuid: string) => void adopted.push(uuid) } as unknown as Databases
  const records = await StandbyRecords.open(store)
  const config = {} as Config
  return new Standby({ records, databases, config, logger: pino({ level: 'silent' }) })
}

t.test('the record survives a restart, and its reports do not show the password', async (t) => {
  const store = new MemoryRecords()
  const records = await StandbyRecords.open(store)
  t.ok(records.acceptsWrites)
  t.equal(await records.enter('promote'), false)
  t.ok(await records.enter('follow', FOLLOWED))
  await records.noteDatabase('notes', { instance: '1', seq: '4-abc', purges: 0, refused: 2 })
  await records.enter('halt', { reason: 'notes was restored' })
  const again = await standbyOver(store, [])
  t.notOk(again.acceptsWrites)
  const report = again.report()
  t.match(report, { state: 'halted', databases: 1, refused: 2, reason: 'notes was restored' })
  t.equal(report.first, 'http://primary:5984/')
  t.notMatch(JSON.stringify(report), /secret/)
})

t.test('what ends after a promotion leaves nothing behind', async (t) => {
  const store = new MemoryRecords()
  const records = await StandbyRecords.open(store)
  await records.enter('follow', FOLLOWED)
  await records.enter('promote')
  await records.finish()
  await records.noteDatabase('notes', { instance: '1', seq: '4-abc', purges: 0, refused: 0 })
  t.equal(records.databases().size, 0)
  t.equal((await StandbyRecords.open(store)).databases().size, 0)
})

t.test('a promotion that ends at any of its writes is finished by the next start', async (t) => {
  for (let failing = 1; failing <= 3; failing++) {
    let writes = 0
    let isBroken = false
    const store = new FailingRecords(() => {
      writes += 1
      if (isBroken && writes === failing) throw new Error('crashed')
    })
    await (await StandbyRecords.open(store)).enter('follow', FOLLOWED)
    writes = 0
    isBroken = true
    const adopted: string[] = []
    const crashed = await standbyOver(store, adopted)
    const promoted = await crashed.promote().then(
      () => true,
      () => false,
    )
    isBroken = false
    const after = await standbyOver(store, adopted)
    await after.recover()
    if (failing === 1) t.notOk(after.acceptsWrites, 'a promotion that was not recorded has not begun')
    else t.ok(after.acceptsWrites)
    t.equal(promoted, failing === 3)
    t.same(new Set(adopted), new Set(failing === 1 ? [] : ['u1']))
    if (failing > 1)
      t.same([...store.all('standby'), ...store.all('standby-database')], [], 'the credentials are gone')
  }
})

t.test(
  'a damaged record keeps the server from starting, since it must not take writes by mistake',
  async (t) => {
    const store = new MemoryRecords()
    await store.writeRecords([{ kind: 'standby', key: 'first', value: '{}' }])
    await t.rejects(StandbyRecords.open(store), /damaged/)
  },
)

t.test('a server in hosted mode is no standby', async (t) => {
  const records = await StandbyRecords.open(new MemoryRecords())
  const config = { isHosted: true } as Config
  const databases = {} as Databases
  const standby = new Standby({ records, databases, config, logger: pino({ level: 'silent' }) })
  await t.rejects(standby.follow({ url: 'http://admin:secret@primary:5984', again: false }), /hosted mode/)
  t.ok(standby.acceptsWrites)
})

t.test('a server whose engine has no files is no standby: it could set nothing aside', async (t) => {
  const records = await StandbyRecords.open(new MemoryRecords())
  const databases = { copies: null } as Databases
  const config = { isHosted: false } as Config
  const standby = new Standby({ records, databases, config, logger: pino({ level: 'silent' }) })
  const following = standby.follow({ url: 'http://admin:secret@primary:5984', again: false })
  await t.rejects(following, { code: 'no_copies', reason: /its store makes the copies/ })
})

t.test('the health of a standby', async (t) => {
  const fine = {
    state: 'following',
    first: 'http://primary:5984/',
    lagSeconds: 3,
    databases: 2,
    waiting: 0,
    refused: 0,
    reason: null,
    failures: [],
  } as const
  const reasonOf = (change: object) => standbyFacts({ ...fine, ...change }, 60)[0]?.reason
  t.same(standbyFacts({ ...fine, state: 'none' }, 60), [])
  t.match(standbyFacts(fine, 60), [{ name: 'standby', ok: true, lag: 3 }])
  t.equal(reasonOf({ state: 'halted', reason: 'x' }), 'The standby has stopped following: x.')
  t.equal(reasonOf({ lagSeconds: null }), 'The initial copy is not complete.')
  t.equal(reasonOf({ lagSeconds: 61, reason: 'down' }), 'The standby is 61 s behind its primary (down).')
  const failures = [{ database: 'a', reason: 'full' }]
  t.equal(reasonOf({ lagSeconds: 99, failures }), 'The standby is 99 s behind its primary (a: full).')
  t.match(reasonOf({ refused: 2 }), /^2 revisions could not/)
})
