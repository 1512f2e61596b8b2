/** Documents of `_replicator` on a server that is killed: they start again, and go on from their checkpoints. */
import t from 'tap'
import { startChildServer } from '../../helpers/child-server.ts'
import { until } from '../../helpers/until.ts'

const DOCS = 4000
const KILLS = 3

t.test('replications of documents survive kills', async (t) => {
  const server = await startChildServer(t)
  const call = async (method: string, path: string, body?: object) => {
    const init = { method, headers: { 'content-type': 'application/json' } }
    const answer = await fetch(server.url + path, { ...init, ...(body && { body: JSON.stringify(body) }) })
    // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
    return (await answer.json()) as any
  }
  for (const name of ['_replicator', 'notes', 'copy', 'other']) await call('PUT', `/${name}`)
  const docs = Array.from({ length: DOCS }, (_, n) => ({ _id: `${n}`, text: 'x'.repeat(500) }))
  await call('POST', '/notes/_bulk_docs', { docs })
  const options = { source: 'notes', checkpoint_interval: 100, worker_batch_size: 50, worker_processes: 1 }
  await call('PUT', '/_replicator/all', { ...options, target: 'copy', continuous: true })
  let least = 0
  for (let kill = 1; kill <= KILLS; kill++) {
    const enough = (DOCS / (KILLS + 1)) * kill
    await until(async () => (await call('GET', '/copy')).doc_count >= enough)
    await server.kill()
    await server.start()
    const { doc_count: count } = await call('GET', '/copy')
    t.ok(count >= least, `${count} documents after kill ${kill}`)
    least = count
  }
  await call('PUT', '/_replicator/once', { ...options, target: 'other' })
  await server.kill()
  await server.start()
  await until(async () => (await call('GET', '/copy')).doc_count === DOCS)
  await until(async () => (await call('GET', '/_replicator/once'))._replication_state === 'completed')
  t.equal((await call('GET', '/other')).doc_count, DOCS)
  const { info, state } = await call('GET', '/_scheduler/docs/_replicator/all')
  t.equal(state, 'running')
  t.ok(info.docs_written < DOCS, `the last run has written ${info.docs_written} documents`)
})
