/** A replication that only reads its source: for `settee move` and for a server that follows another. */
import t from 'tap'
import { COPYING_USER } from '../../src/auth/accounts.ts'
import { openConfig } from '../../src/config/config.ts'
import { bodyFilesOf } from '../../src/config/settings.ts'
import { AMPLE_SPACE } from '../../src/core/types.ts'
import { Intake } from '../../src/replication/intake.ts'
import { RemotePeer } from '../../src/replication/remote/remote-peer.ts'
import { RemoteConnections } from '../../src/replication/remote/remote-requests.ts'
import { Replication } from '../../src/replication/replication.ts'
import {
  type RemoteEndpoint,
  type ReplicationDefaults,
  readReplication,
} from '../../src/replication/requests/replication-request.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { count, DOCS, sceneMaker, status } from './failing-peers.ts'

const DEFAULTS: ReplicationDefaults = {
  usesCheckpoints: true,
  checkpointInterval: 5000,
  usesBulkGet: true,
  batchSize: 25,
  batches: 4,
  timeout: 30_000,
  retries: 1,
}
const READS = /^(?:GET|HEAD) |^POST \/full\/_(?:bulk_get|changes)\b/

const scene = sceneMaker(t)

t.test('nothing is written to the source, and the next run goes on from the target', async (t) => {
  const { server, remote } = await scene(t)
  const connections = new RemoteConnections()
  t.teardown(() => connections.close())
  const folder = await temporaryFolder(t)
  const config = await openConfig({ dataDir: folder, env: {}, flags: {} })
  const files = bodyFilesOf(config, () => AMPLE_SPACE, folder)
  await server.request('PUT', '/full/picture/a.png', { body: Buffer.alloc(1000) })
  const replicate = async () => {
    const body = { source: `${remote.url}/full`, target: `${server.url}/empty` }
    const request = readReplication(body, DEFAULTS)
    const peer = (endpoint: unknown) =>
      new RemotePeer(endpoint as RemoteEndpoint, connections, {
        mayBePrivate: true,
        proxy: undefined,
        timeoutMs: 30_000,
        verifiesCertificates: true,
      })
    return new Replication({
      source: peer(request.source),
      target: peer(request.target),
      options: request.options,
      checkpointId: '_local/from-the-old-server',
      intake: new Intake({ config, files, user: COPYING_USER }),
      signal: AbortSignal.timeout(60_000),
      isSourceReadOnly: true,
      inTurn: (batch) => batch(),
      onRetry: () => {},
      onRefused: (id, reason) => t.fail(`${id}: ${reason}`),
    }).run()
  }
  t.match(await replicate(), { history: [{ docs_written: DOCS.length + 1, doc_write_failures: 0 }] })
  t.equal(await count(server, 'empty'), DOCS.length + 1)
  t.same((await server.request('GET', '/full/_local_docs')).json.rows, [])

  t.test('the next run reads only what is new', async (t) => {
    await server.request('PUT', '/full/new', { body: {} })
    t.match(await replicate(), { history: [{ docs_written: 1, missing_checked: 1 }, {}] })
  })

  t.test('a run that was cut goes on from its last checkpoint', async (t) => {
    await server.request('PUT', '/full/newer', { body: {} })
    remote.script(/_changes/, ...Array.from({ length: 2 }, () => status(500)))
    await t.rejects(replicate())
    t.match(await replicate(), { history: [{ docs_written: 1, missing_checked: 1 }, {}, {}] })
  })

  t.test('only reads were sent', async (t) => {
    t.ok(remote.requests.some((line) => line.includes('/_bulk_get')))
    t.same(
      remote.requests.filter((line) => !READS.test(line)),
      [],
    )
  })
})
