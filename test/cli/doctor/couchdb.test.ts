/** The doctor before servers that answer as CouchDB 3 and as PouchDB Server do. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { answerAsCouch, type CouchOptions } from './couch.ts'
import { FEED, look, NO_FEED, onlyWrong } from './looking.ts'

const SHORT = { bodies: [] }

async function couch(
  t: Test,
  options: CouchOptions = {},
  stored = new Map<string, string>(),
): Promise<string> {
  const server = createServer(answerAsCouch(options, stored)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://anna:secret@127.0.0.1:${(server.address() as AddressInfo).port}/notes`
}

const POUCH: CouchOptions = {
  welcome: {
    'express-pouchdb': 'Welcome!',
    version: '4.2.0',
    vendor: { name: 'PouchDB authors', version: '4.2.0' },
  },
  server: null,
  origins: null,
  isPouch: true,
}

t.test('a CouchDB that is set up', async (t) => {
  const stored = new Map<string, string>()
  const looked = await look(await couch(t, { security: { members: { names: ['anna'] } } }, stored), {
    pace: { ...FEED, bodies: [2048, 1_049_600, 10_486_784] },
  })
  onlyWrong(t, looked)
  t.equal(looked.one('feed').state, 'fine')
  t.equal(looked.one('server').text, 'CouchDB 3.5.0.')
  t.match(looked.one('bodies').text, /^The server accepts bodies of .*10 MB/)
  t.equal(stored.size, 0)
})

t.test('a CouchDB as it comes has no CORS', async (t) => {
  const looked = await look(await couch(t, { origins: null }), { pace: SHORT })
  onlyWrong(t, looked, 'preflights', 'cors')
  t.match(looked.cures('preflights')[0], /^CouchDB: curl .*chttpd\/enable_cors/)
})

t.test('a PouchDB Server', async (t) => {
  const stored = new Map<string, string>()
  const looked = await look(await couch(t, POUCH, stored), { pace: SHORT })
  onlyWrong(t, looked, 'preflights', 'cors')
  t.equal(looked.one('server').text, 'PouchDB Server 4.2.0.')
  t.match(looked.one('version'), { state: 'note', text: /The header Server is missing/, cures: [] })
  t.match(looked.one('location'), { state: 'skipped' })
  t.match(looked.cures('preflights')[0], /^PouchDB Server: config\.json/)
  t.equal(stored.size, 0, 'deleted, though the revision was needed')
})

t.test('versions that LiveSync reads', async (t) => {
  const rows: [server: string, state: string][] = [
    ['CouchDB/3.2.0 (Erlang OTP/24)', 'fine'],
    ['settee/0.1.0 CouchDB/10.0.1', 'fine'],
    ['CouchDB/3.1.9 (Erlang OTP/22)', 'note'],
    ['CouchDB/2.3.1', 'note'],
  ]
  for (const [server, state] of rows) {
    t.equal((await look(await couch(t, { server }), { pace: SHORT })).one('version').state, state, server)
  }
})

t.test('clocks', async (t) => {
  const rows: [options: CouchOptions, state: string, text: RegExp][] = [
    [{}, 'fine', /same as this|s off/],
    [{ ahead: 120 }, 'note', /1[12]\d s ahead of/],
    [{ ahead: -3600 }, 'wrong', /36\d\d s behind|35\d\d s behind/],
    [{ dateless: true }, 'note', /no Date/],
  ]
  for (const [options, state, text] of rows) {
    t.match((await look(await couch(t, options), { pace: SHORT })).one('clock'), { state, text })
  }
})

t.test('a feed whose beats are late', async (t) => {
  const looked = await look(await couch(t, { beats: 60_000 }), { pace: { ...SHORT, ...NO_FEED } })
  t.match(looked.one('feed'), { state: 'wrong', text: /was silent/ })
})

t.test('a PouchDB Server whose beats do not come', async (t) => {
  const looked = await look(await couch(t, { ...POUCH, beats: 60_000 }), { pace: { ...SHORT, ...NO_FEED } })
  t.match(looked.one('feed'), { state: 'note', text: /^PouchDB Server sends a heartbeat only every 6 s/ })
})

t.test('the filter of phones, on a server that answers anything', async (t) => {
  const huge = `{"filters":{"sync":"function () { var a = []; for (;;) a.push('x'.repeat(1e6)) }"}}`
  const rows: [design: string, text: RegExp][] = [
    ['[]', /has no filters/],
    ['null', /has no filters/],
    ['{"filters":null}', /has no filters/],
    ['not JSON', /has no filters/],
    [huge, /fails/],
  ]
  for (const [design, text] of rows) {
    const address = await couch(t, { designs: { '_design/mobile': design } })
    t.match((await look(address, { pace: SHORT, mobile: true })).one('mobile'), { state: 'wrong', text })
  }
})
