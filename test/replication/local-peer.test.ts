/** What a replication learns of a database of this server that is gone while it is used. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { LocalPeer } from '../../src/replication/local-peer.ts'
import { ADMIN } from '../documents/helpers.ts'

function peerOf(has: () => Promise<boolean>): LocalPeer {
  const get = () => Promise.reject(new CouchError('no_database'))
  const databases = { get, has, serverUuid: 'e3f0' }
  return new LocalPeer({
    databases,
    name: 'notes',
    user: ADMIN,
    address: 'notes',
    create: () => Promise.resolve(),
  })
}

/** @returns the faults of a call and of a stream */
async function faultsOf(peer: LocalPeer): Promise<unknown[]> {
  const stream = peer.bulkGet(new Uint8Array())[Symbol.asyncIterator]()
  const outcomes = await Promise.allSettled([peer.info(), stream.next()])
  return outcomes.map((outcome) => (outcome.status === 'rejected' ? outcome.reason.fault : null))
}

t.test('only a deletion ends a replication, not a restore or a repair', async (t) => {
  const deleted = peerOf(async () => false)
  const replaced = [
    peerOf(async () => true),
    peerOf(() => Promise.reject(new CouchError('store_unavailable'))),
  ]
  t.same(await faultsOf(deleted), ['db_not_found', 'db_not_found'])
  for (const peer of replaced) t.same(await faultsOf(peer), ['server_error', 'server_error'])
})
