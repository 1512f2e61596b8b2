/** Hosted mode on two HTTP nodes over one state in memory, with PouchDB. */
import t from 'tap'
import { until } from '../helpers/until.ts'
import { startTwoNodes } from '../http/two-nodes.ts'
import { device, liveSync, remote } from '../protocol/devices.ts'

const ANNA = { auth: 'anna:anna' }
const BERT = { auth: 'bert:bert' }
const BOSS = { auth: 'boss:secret' }

t.test('what a tenant makes on one node is its own on the other, and nobody else’s', async (t) => {
  const { first, second } = await startTwoNodes(t, { 'settee/mode': 'hosted' })
  const made = await Promise.all([first('PUT', '/wanted', ANNA), second('PUT', '/wanted', BERT)])
  t.same(made.map(({ status }) => status).sort(), [201, 412])
  const [winner, loser] = made[0].status === 201 ? [ANNA, BERT] : [BERT, ANNA]
  for (const node of [first, second]) {
    t.equal((await node('GET', '/wanted', winner)).status, 200)
    t.equal((await node('GET', '/wanted', loser)).status, 404)
    t.same((await node('GET', '/_all_dbs', winner)).json, ['wanted'])
    t.same((await node('GET', '/_all_dbs', loser)).json, [])
  }
  t.equal((await second('DELETE', '/wanted', winner)).status, 200)
  await until('it is gone on both', async () => (await first('GET', '/wanted', winner)).status === 404)
  t.equal((await first('PUT', '/wanted', loser)).status, 201, 'and the name is free')
})

t.test('live sync through one node ends when the other suspends the account', async (t) => {
  const { two, first } = await startTwoNodes(t, { 'settee/mode': 'hosted' })
  t.equal((await first('PUT', '/notes', ANNA)).status, 201)
  const phone = await device(t)
  const there = remote(`${two.url.replace('://', '://anna:anna@')}/notes`)
  const { errors } = liveSync(t, phone, there.db)
  await phone.put({ _id: 'a' })
  await until('it is pushed', async () => (await first('GET', '/notes/a', ANNA)).status === 200)
  await until('it waits', () => there.seen.some(({ query }) => query.get('feed') === 'longpoll'))
  const began = performance.now()
  const suspended = await first('PUT', '/_settee/accounts/anna', { ...BOSS, json: { suspended: true } })
  t.equal(suspended.status, 200)
  await until('it is told', () => errors.length > 0)
  t.ok(performance.now() - began < 5000, `${performance.now() - began} ms`)
})

t.test('a quota counts what both nodes wrote', async (t) => {
  const { first, second } = await startTwoNodes(t, { 'settee/mode': 'hosted' })
  for (const name of ['a', 'b']) t.equal((await first('PUT', `/${name}`, ANNA)).status, 201)
  const json = { quota: { documents: 12 } }
  t.equal((await first('PUT', '/_settee/accounts/anna', { ...BOSS, json })).status, 200)
  const docs = Array.from({ length: 10 }, (_, at) => ({ _id: `n${at}` }))
  t.equal((await first('POST', '/a/_bulk_docs', { ...ANNA, json: { docs } })).status, 201)
  // The sizes of other databases are about two seconds old on another node.
  const measured = async () => {
    const { json } = await second('GET', '/_settee/account', ANNA)
    return (json as { usage: { documents: number } }).usage.documents === 10
  }
  await until('the other node knows', measured)
  const statuses: number[] = []
  for (let n = 0; n < 4; n++) {
    statuses.push((await second('PUT', `/b/n${n}`, { ...ANNA, body: '{}' })).status)
  }
  t.same(statuses, [201, 201, 403, 403])
})

t.test('in one database no node exceeds the number of documents, however many write at once', async (t) => {
  const { first, second } = await startTwoNodes(t, { 'settee/mode': 'hosted' })
  t.equal((await first('PUT', '/notes', ANNA)).status, 201)
  const json = { quota: { documents: 3 } }
  t.equal((await first('PUT', '/_settee/accounts/anna', { ...BOSS, json })).status, 200)
  t.equal((await second('GET', '/notes', ANNA)).status, 200)
  const puts = Array.from({ length: 10 }, (_, n) =>
    (n % 2 === 0 ? first : second)('PUT', `/notes/n${n}`, { ...ANNA, body: '{}' }),
  )
  const statuses = (await Promise.all(puts)).map(({ status }) => status).sort()
  t.same(statuses, [...Array(3).fill(201), ...Array(7).fill(403)])
})
