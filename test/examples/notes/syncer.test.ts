/** One sync at a time, over a server that listens; the rules of what travels. */
import { randomUUID } from 'node:crypto'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t, { type Test } from 'tap'
import { browserName } from '../../../examples/notes/src/device.ts'
import type { Diagnosis, FindingCode } from '../../../examples/notes/src/diagnosis/finding.ts'
import { databaseOf } from '../../../examples/notes/src/hosted.ts'
import type { SyncEvent } from '../../../examples/notes/src/log.ts'
import type { Pouch, PouchOptions } from '../../../examples/notes/src/pouch.ts'
import { DEFAULTS } from '../../../examples/notes/src/settings.ts'
import { isForMobile, mobileOptions } from '../../../examples/notes/src/sync/mobile.ts'
import { kindOf, Refusals } from '../../../examples/notes/src/sync/refusals.ts'
import { headersOf, remoteOf } from '../../../examples/notes/src/sync/remote.ts'
import { backOff, Syncer, type SyncerOptions } from '../../../examples/notes/src/sync/syncer.ts'
import { choiceOf } from '../../../examples/notes/src/sync/target.ts'
import { parseAddress } from '../../../src/core/address.ts'
import { MOBILE_FILTER } from '../../../src/vaults/livesync.ts'
import { startTestServer } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'

PouchDB.plugin(memoryAdapter)

const WELL: Diagnosis = { checks: [], finding: null }

function shelf() {
  const kept = new Map<string, string>()
  return {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  }
}

function syncer(t: Test, { send = fetch, diagnose = async () => WELL }: Partial<SyncerOptions> = {}) {
  const local = new PouchDB(`notes-${randomUUID()}`, { adapter: 'memory' })
  const events: SyncEvent[] = []
  const asked: string[] = []
  const made = new Syncer({
    local: local as unknown as Pouch,
    open: (url, options) => new PouchDB(url, options as PouchDB.Options) as unknown as Pouch,
    send: (input, init) => {
      asked.push(String(input))
      return send(input, init)
    },
    refusals: new Refusals(shelf()),
    note: (event) => events.push(event),
    diagnose,
  })
  t.teardown(async () => {
    made.choose({ idle: { reason: 'off' } })
    await local.destroy()
  })
  const phase = (wanted: string) =>
    new Promise<void>((resolve) => {
      const end = made.subscribe(({ phase }) => phase === wanted && resolve(end()))
      if (made.value.phase === wanted) resolve(end())
    })
  return { made, local, events, asked, phase }
}

t.test('another target ends the sync before it, and keeps every note', async (t) => {
  const server = await startTestServer(t)
  for (const name of ['one', 'two']) await server.request('PUT', `/${name}`)
  const { made, local, events, asked, phase } = syncer(t)
  const address = (name: string) => `${server.url}/${name}`
  const choose = (name: string) =>
    made.choose(choiceOf({ ...DEFAULTS, mode: 'advanced', address: address(name) }, ''))
  await local.put({ _id: 'note:1' })
  choose('one')
  await phase('synced')
  t.equal(made.value.sent, 1)
  choose('two')
  await phase('synced')
  const before = asked.length
  t.notOk(asked.slice(before).some((url) => url.startsWith(address('one'))))
  made.choose({ idle: { reason: 'off' } })
  t.match(made.value, { phase: 'idle', idle: { reason: 'off' }, sent: 0 })
  const atEnd = asked.length
  await local.put({ _id: 'note:2' })
  await local.info()
  t.equal(asked.length, atEnd, 'nothing is asked any more')
  t.equal((await server.request('GET', '/two/note:1')).status, 200)
  t.equal((await local.info()).doc_count, 2)
  t.same(
    events.filter(({ act }) => act === 'start' || act === 'stop').map(({ act }) => act),
    ['start', 'stop', 'start', 'stop'],
  )
  t.notMatch(JSON.stringify(events), /127\.0\.0\.1.*@/)
})

t.test('modes that change faster than anything answers: the last one counts', async (t) => {
  const server = await startTestServer(t)
  for (const name of ['one', 'two']) await server.request('PUT', `/${name}`)
  const { made, local, asked, phase } = syncer(t)
  const choose = (name: string) =>
    made.choose(choiceOf({ ...DEFAULTS, mode: 'advanced', address: `${server.url}/${name}` }, ''))
  await local.put({ _id: 'note:1' })
  for (let at = 0; at < 40; at++) {
    choose(at % 2 === 0 ? 'one' : 'two')
    // Between all the steps of a start.
    for (let turn = 0; turn < at % 8; turn++) await new Promise(setImmediate)
  }
  await phase('synced')
  const before = asked.length
  await local.put({ _id: 'note:2' })
  await until(async () => (await server.request('GET', '/two/note:2')).status === 200)
  t.notOk(
    asked.slice(before).some((url) => url.startsWith(`${server.url}/one`)),
    'the first database is not asked any more',
  )
  for (let at = 0; at < 20; at++) {
    choose('one')
    made.choose({ idle: { reason: 'off' } })
  }
  t.match(made.value, { phase: 'idle', idle: { reason: 'off' } })
  const atEnd = asked.length
  await local.put({ _id: 'note:3' })
  await server.request('GET', '/one')
  t.equal(asked.length, atEnd, 'nothing is asked any more')
  t.equal((await server.request('GET', '/one/note:3')).status, 404)
  t.equal((await local.info()).doc_count, 3, 'every note is kept')
})

t.test('a database that is made while the sync waits for it may not have its members yet', async (t) => {
  const server = await startTestServer(t)
  const codes: (FindingCode | null)[] = ['no_database', 'rights', null]
  const { made, phase } = syncer(t, {
    diagnose: async () => {
      const code = codes.shift() ?? null
      if (code === null) await server.request('PUT', '/one')
      return { checks: [], finding: code && { code, title: code, detail: '' } }
    },
  })
  const choose = () =>
    made.choose(choiceOf({ ...DEFAULTS, mode: 'advanced', address: `${server.url}/one` }, ''))
  choose()
  await phase('synced')
  codes.push('rights')
  choose()
  await phase('stopped')
})

t.test('a request that is refused while the database answers well is explained by its answer', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/one')
  let isFull = true
  const looks: boolean[] = []
  const { made, local, phase } = syncer(t, {
    send: async (input, init) =>
      isFull && String(input).endsWith('/_bulk_docs')
        ? Response.json({ error: 'too_large', reason: 'it is too large' }, { status: 413 })
        : fetch(input, init),
    diagnose: async () => {
      looks.push(isFull)
      return WELL
    },
  })
  await local.put({ _id: 'note:1' })
  made.choose(choiceOf({ ...DEFAULTS, mode: 'advanced', address: `${server.url}/one` }, ''))
  await until(() => made.value.finding !== null)
  t.match(made.value, {
    phase: 'waiting',
    finding: { code: 'refusal', title: /413/, detail: /it is too large/ },
  })
  await until(() => looks.length >= 3)
  t.pass('each try is looked at')
  isFull = false
  await phase('synced')
  t.equal(made.value.finding, null)
  t.equal((await server.request('GET', '/one/note:1')).status, 200)
})

t.test('what a mobile device leaves out, in each direction', async (t) => {
  t.same(mobileOptions('none', 'pull'), {})
  t.same(mobileOptions('filter', 'pull'), { filter: 'mobile/sync' })
  t.same(Object.keys(mobileOptions('selector', 'pull')), ['selector'])
  const filter = new Function(`return ${MOBILE_FILTER}`)() as typeof isForMobile
  for (const _id of ['note:1', 'file:1', 'x-file:1', '_design/mobile', 'profile']) {
    t.equal(filter({ _id }), isForMobile({ _id }), _id)
    t.equal(mobileOptions('filter', 'push').filter, isForMobile)
  }
  t.notOk(isForMobile({ _id: 'file:1' }))
})

t.test('requests carry the credentials of the Address, and no cookies', async (t) => {
  const sent: [string, RequestInit | undefined][] = []
  const send: typeof fetch = async (input, init) => {
    sent.push([String(input), init])
    return new Response('{}')
  }
  for (const [text, url] of [
    ['https://a:b%40@h:443/n', 'https://h:443/n'],
    ['http://a:b@[::1]:5984/n', 'http://[::1]:5984/n'],
  ] as const) {
    const parsed = parseAddress(text)
    if (!parsed.ok) throw new Error('no address')
    const remote = remoteOf(parsed.address, new AbortController().signal, send)
    t.ok(URL.canParse(remote.url))
    t.notMatch(remote.url, /\[/, 'PouchDB does not read IPv6')
    await (remote.options as PouchOptions).fetch?.(`${remote.url}/_changes`, { credentials: 'include' })
    t.equal(sent.at(-1)?.[0], `${url}/_changes`)
    t.equal(sent.at(-1)?.[1]?.credentials, 'omit')
    t.match(headersOf(parsed.address), { authorization: /^Basic / })
  }
})

t.test('the delay grows to half a minute', async (t) => {
  t.equal(backOff(0), 1000)
  t.equal(backOff(1000), 2000)
  t.equal(backOff(29_000), 30_000)
})

t.test('refusals are remembered by database', async (t) => {
  const kept = shelf()
  const refusals = new Refusals(kept)
  refusals.show('hosted x')
  refusals.add({ id: 'file:1', reason: 'no' })
  refusals.add({ id: 'file:1', reason: 'still no' })
  refusals.show('advanced y')
  t.same(refusals.value, [])
  const later = new Refusals(kept)
  later.show('hosted x')
  t.same(later.value, [{ id: 'file:1', reason: 'still no' }])
  later.remove(new Set(['file:1']))
  t.same(later.value, [])
  for (const text of ['1', '[1]', '[["advanced y", [{"id":1}]]]', '[["advanced y", [null]]]']) {
    kept.setItem('notes.refusals', text)
    const strange = new Refusals(kept)
    strange.show('advanced y')
    t.same(strange.value, [], text)
  }
  const full = new Refusals({
    ...shelf(),
    setItem: () => {
      throw new Error('full')
    },
  })
  full.show('hosted x')
  full.add({ id: 'file:1', reason: 'no' })
  t.equal(full.value.length, 1, 'a full shelf costs nothing that is shown')
  t.same(['file:1', '_design/x', 'book:1', 'tag:1', 'note:1'].map(kindOf), [
    'Picture',
    'Design document',
    'Book',
    'Tag',
    'Note',
  ])
})

t.test('names', async (t) => {
  t.equal(databaseOf('anna'), 'userdb-616e6e61')
  t.equal(
    browserName('Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537 Chrome/120 Safari/537'),
    'Chrome on Linux',
  )
  t.equal(browserName('curl'), 'Browser')
})
