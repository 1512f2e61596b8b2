/** A standby stops by itself rather than lose what it has, and goes on as its operator decides. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ControlCommands } from '../../../src/control/control-commands.ts'
import { reachServer } from '../../../src/control/control-socket.ts'
import type { StandbyReport } from '../../../src/standby/standby.ts'
import { copyNotes, restoreNotes } from '../../faults/restoring.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'
import { switchableAddress } from '../../helpers/switchable-address.ts'

t.setTimeout(300_000)

async function controlsOf({ dataDir }: TestServer): Promise<ControlCommands> {
  const controls = await reachServer(dataDir)
  if (controls === null) throw new Error('the server does not listen')
  return controls
}

async function until(controls: ControlCommands, holds: (report: StandbyReport) => boolean) {
  for (;;) {
    const report = await controls.readStandby({})
    if (holds(report)) return report
    await delay(50)
  }
}

/** A primary with these databases, each with a document, and a standby that has them. */
async function startPair(t: Test, names: readonly string[]) {
  const primary = await startTestServer(t)
  for (const name of names) {
    await primary.request('PUT', `/${name}`)
    await primary.request('PUT', `/${name}/old`, { body: {} })
  }
  const address = await switchableAddress(t, primary.url)
  const dataDir = await temporaryFolder(t)
  const standby = await startTestServer(t, { dataDir })
  const controls = await controlsOf(standby)
  await controls.follow({ url: address.url, again: false })
  await untilCurrent(controls)
  return { primary, standby, controls, address, dataDir }
}

const untilCurrent = (controls: ControlCommands) =>
  until(controls, ({ lagSeconds, waiting }) => waiting === 0 && lagSeconds !== null && lagSeconds < 4)

const statusOf = async (server: TestServer, path: string) => (await server.request('GET', path)).status

t.test(
  'a database that the primary has restored stops the standby, until its operator lets it go on',
  async (t) => {
    const { primary, standby, controls, dataDir } = await startPair(t, ['notes', 'plans'])
    const copy = await copyNotes(t, primary)
    await primary.request('PUT', '/notes/new', { body: {} })
    while ((await statusOf(standby, '/notes/new')) !== 200) await delay(50)
    await restoreNotes(primary, copy)
    const { reason } = await until(controls, ({ state }) => state === 'halted')
    t.match(reason, /^notes was restored/)
    t.equal(await statusOf(standby, '/notes/new'), 200, 'it has what the primary has lost')
    t.match(await standby.request('GET', '/_up?deep=1'), {
      status: 503,
      text: /has stopped following: notes was/,
    })
    t.equal((await standby.request('PUT', '/notes/x', { body: {} })).status, 503)
    await t.rejects(controls.follow({ url: null, again: false }), /--again/)

    await t.test('a restart does not make it go on', async (t) => {
      await standby.close()
      const restarted = await startTestServer(t, { dataDir })
      t.match(await (await controlsOf(restarted)).readStandby({}), { state: 'halted', reason: /^notes was/ })
      await restarted.close()
    })

    const again = await startTestServer(t, { dataDir })
    const controlsAgain = await controlsOf(again)
    await controlsAgain.follow({ url: null, again: true })
    while ((await statusOf(again, '/notes/new')) !== 404) await delay(50)
    await untilCurrent(controlsAgain)
    t.equal(await statusOf(again, '/notes/old'), 200)
    t.match(await readdir(join(dataDir, 'replaced')), [/^notes\./])
  },
)

t.test('deleted databases are kept as files, and databases made anew are copied anew', async (t) => {
  const { primary, standby, controls, dataDir } = await startPair(t, ['gone', 'again', 'a', 'b', 'c'])
  await primary.request('DELETE', '/gone')
  await primary.request('DELETE', '/again')
  await primary.request('PUT', '/again')
  await primary.request('PUT', '/again/new', { body: {} })
  while ((await statusOf(standby, '/again/new')) !== 200) await delay(50)
  // The databases of the test, without `gone`, and `_users`.
  await until(controls, ({ databases }) => databases === 5)
  t.equal(await statusOf(standby, '/again/old'), 404)
  t.equal(await statusOf(standby, '/gone'), 404)
  t.match((await readdir(join(dataDir, 'replaced'))).sort(), [/^again\./, /^gone\./])
})

t.test('what the primary purges is purged, and what a device sends again comes again', async (t) => {
  const { primary, standby } = await startPair(t, ['notes'])
  const put = (id: string) => primary.request('PUT', `/notes/${id}`, { body: {} })
  const again = await put('again')
  const purge = async (id: string) => {
    const { _rev } = (await primary.request('GET', `/notes/${id}`)).json
    t.match((await primary.request('POST', '/notes/_purge', { body: { [id]: [_rev] } })).json, {
      purged: { [id]: [_rev] },
    })
  }
  while ((await statusOf(standby, '/notes/again')) !== 200) await delay(50)
  await purge('old')
  await purge('again')
  const docs = [{ _id: 'again', _rev: again.json.rev }]
  await primary.request('POST', '/notes/_bulk_docs', { body: { docs, new_edits: false } })
  await put('new')
  while ((await statusOf(standby, '/notes/new')) !== 200) await delay(50)
  t.equal(await statusOf(standby, '/notes/old'), 404)
  t.equal((await standby.request('GET', '/notes/again')).json._rev, again.json.rev)
  t.same((await standby.request('GET', '/notes/_purged_infos')).json.purged_infos.length, 2)
})

t.test('when most databases are gone, the standby keeps them, and can be promoted', async (t) => {
  const names = ['a', 'b', 'c', 'd']
  const { primary, standby, controls } = await startPair(t, names)
  for (const name of names.slice(1)) await primary.request('DELETE', `/${name}`)
  const { reason } = await until(controls, ({ state }) => state === 'halted')
  t.match(reason, /of 4 databases are gone/)
  await controls.promote({})
  for (const name of names.slice(2)) t.equal(await statusOf(standby, `/${name}/old`), 200)
  t.equal((await standby.request('PUT', '/d/new', { body: {} })).status, 201)
})

t.test('another server under the address stops the standby, and one that is down does not', async (t) => {
  const { primary, standby, controls, address, dataDir } = await startPair(t, ['notes'])
  address.leadTo(null)
  await primary.request('PUT', '/notes/meanwhile', { body: {} })
  const down = await until(controls, ({ lagSeconds }) => (lagSeconds ?? 0) > 5)
  t.match(down, { state: 'following', reason: /could not be reached/ })
  t.equal(await statusOf(standby, '/notes/meanwhile'), 404)
  address.leadTo(primary.url)
  while ((await statusOf(standby, '/notes/meanwhile')) !== 200) await delay(50)
  await untilCurrent(controls)
  await standby.close()

  const other = await startTestServer(t)
  await other.request('PUT', '/else')
  address.leadTo(other.url)
  const restarted = await startTestServer(t, { dataDir })
  const { reason } = await until(await controlsOf(restarted), ({ state }) => state === 'halted')
  t.match(reason, /is another server than before/)
  t.equal(await statusOf(restarted, '/notes/meanwhile'), 200)
  t.equal(await statusOf(restarted, '/else'), 404)
})
