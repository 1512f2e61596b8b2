/**
 * A disk that becomes read-only, one that vanishes and returns, one that does not sync, a process without further files,
 * and a clock that is set back by a year. In each case an acknowledged write is there afterwards, a refused one is not, and
 * the server works again by itself.
 */
import t, { type Test } from 'tap'
import {
  type BadMachine,
  EINVAL,
  EIO,
  EMFILE,
  ENOENT,
  EROFS,
  startOnBadMachine,
} from '../../faults/bad-machine.ts'

/** So that a third database must be opened for each request. */
const INI = '[couchdb]\nmax_dbs_open = 2\n'
const NAMES = ['notes', 'others', 'third']

/** The acknowledged texts, by database and document. */
type Ledger = Map<string, string>

async function write(machine: BadMachine, ledger: Ledger, path: string, text: string): Promise<number> {
  const { status, json } = await machine.ask('PUT', `/${path}`, { text })
  if (status === 201) ledger.set(path, text)
  else if (json.error !== 'disk_fault') throw new Error(JSON.stringify(json))
  return status
}

async function allThere(t: Test, machine: BadMachine, ledger: Ledger): Promise<void> {
  const found: Ledger = new Map()
  for (const name of NAMES) {
    const { json } = await machine.ask('GET', `/${name}/_all_docs?include_docs=true`)
    for (const { id, doc } of json.rows) found.set(`${name}/${id}`, doc.text)
  }
  t.strictSame(
    new Map([...found].sort()),
    new Map([...ledger].sort()),
    'exactly the acknowledged writes are stored',
  )
}

t.test('faults of a machine while a server runs', async (t) => {
  const machine = await startOnBadMachine(t, { ini: INI })
  const ledger: Ledger = new Map()
  for (const name of NAMES) {
    await machine.ask('PUT', `/${name}`)
    t.equal(await write(machine, ledger, `${name}/first`, name), 201)
  }
  const recovered = async (t: Test, what: string) => {
    machine.fail({})
    for (const name of NAMES) t.equal(await write(machine, ledger, `${name}/after-${what}`, what), 201)
    await allThere(t, machine, ledger)
    t.match(await machine.ask('GET', '/_up?deep=1'), { status: 200 }, 'it is well again')
  }
  const refusesWrites = async (t: Test, what: string) => {
    for (const name of NAMES) t.equal(await write(machine, ledger, `${name}/${what}`, what), 500)
    t.match(await machine.ask('PUT', '/fourth'), { status: 500, json: { error: 'disk_fault' } }, 'a database')
    t.match(await machine.ask('GET', '/_up?deep=1'), { status: 503 }, 'monitoring is told')
  }

  await t.test('a read-only disk', async (t) => {
    machine.fail({ writeError: EROFS })
    await refusesWrites(t, 'read-only')
    await recovered(t, 'read-only')
  })

  await t.test('a data folder that vanishes and returns', async (t) => {
    machine.fail({ openError: ENOENT, readError: EIO, writeError: EIO, syncError: EIO })
    await refusesWrites(t, 'gone')
    await recovered(t, 'gone')
  })

  await t.test('a file system without fsync', async (t) => {
    machine.fail({ syncError: EINVAL })
    await refusesWrites(t, 'unsynced')
    await recovered(t, 'unsynced')
  })

  await t.test('no more open files', async (t) => {
    machine.fail({ openError: EMFILE })
    const read = await Promise.all(NAMES.map((name) => machine.ask('GET', `/${name}/first`)))
    const open = read.filter(({ status }) => status === 200)
    t.ok(open.length > 0, 'open databases are served')
    t.ok(read.every(({ status, json }) => status === 200 || json.error === 'disk_fault'))
    t.match(await machine.ask('GET', '/_up'), { status: 200 })
    await recovered(t, 'files')
  })

  await t.test('a clock that is set back by a year, and forward again', async (t) => {
    const auth = { 'content-type': 'application/json' }
    const seqs: number[] = []
    const follow = async () => {
      const { json } = await machine.ask('GET', '/notes/_changes')
      seqs.push(...json.results.map(({ seq }: { seq: string }) => Number.parseInt(seq, 10)).slice(-1))
    }
    for (const days of [0, -365, 0]) {
      machine.fail({ clockDays: days })
      t.equal(await write(machine, ledger, `notes/clock-${seqs.length}`, 'a text'), 201)
      const rev = (await machine.ask('GET', '/notes/clock-0')).json._rev
      const { status } = await machine.ask('PUT', `/notes/clock-0?rev=${rev}`, { text: `at ${days}` }, auth)
      t.equal(status, 201)
      ledger.set('notes/clock-0', `at ${days}`)
      await follow()
    }
    t.strictSame(
      seqs,
      seqs.toSorted((a, b) => a - b),
      'a feed goes on',
    )
    const { json } = await machine.ask('GET', '/_settee/databases/notes/history?id=clock-0')
    t.equal(json.versions.length, 4, 'no version is lost')
    await allThere(t, machine, ledger)
    t.match(await machine.ask('GET', '/_up?deep=1'), { status: 200 })
  })

  t.match(await machine.stop(), { code: 0 })
  await machine.start()
  await allThere(t, machine, ledger)
  t.match(await machine.stop(), { code: 0 })
})

/** How much longer a sync takes, in ms. */
const SYNC_MS = 300

t.test('reads do not wait for a sync, and show nothing that is not durable', async (t) => {
  const machine = await startOnBadMachine(t)
  await machine.ask('PUT', '/notes')
  const text = 'x'.repeat(60_000)
  // Where a reader beside the store is opened: a long file that is read often.
  for (let n = 0; n < 6; n++) await machine.ask('PUT', `/notes/filling-${n}`, { text })
  let { rev } = (await machine.ask('PUT', '/notes/a', { n: 0 })).json
  for (let n = 0; n < 50; n++) await machine.ask('GET', '/notes/a')
  const ways = [
    async () => (await machine.ask('GET', '/notes/a')).json._rev,
    async () =>
      (await machine.ask('POST', '/notes/_bulk_get', { docs: [{ id: 'a' }] })).json.results[0].docs[0].ok
        ._rev,
  ]
  for (const way of [...ways, ...ways]) {
    const since = performance.now()
    machine.fail({ syncMs: SYNC_MS })
    let answer: { rev: string } | undefined
    const written = machine.ask('PUT', '/notes/a', { _rev: rev }).then(({ json }) => {
      answer = json
    })
    let reads = 0
    while (answer === undefined) {
      const read = await way()
      if (performance.now() - since > SYNC_MS) continue
      t.equal(read, rev)
      reads += 1
    }
    await written
    machine.fail({})
    rev = (answer as { rev: string }).rev
    t.equal(await way(), rev)
    t.ok(reads > 3, `${reads} reads were answered during a sync`)
    machine.fail({ syncError: EIO })
    t.equal((await machine.ask('PUT', '/notes/a', { _rev: rev, n: 2 })).status, 500)
    t.equal(await way(), rev)
    machine.fail({})
    t.equal(await way(), rev)
    const { status, json } = await machine.ask('PUT', '/notes/a', { _rev: rev })
    t.equal(status, 201)
    rev = json.rev
    for (let n = 0; n < 50; n++) await way()
  }
})
