/** A replicator over the services of a test's server. */
import { Replicator, type ReplicatorOptions } from '../../src/replication/replicator.ts'

export function withReplicator<Services extends Omit<ReplicatorOptions, 'sealingKey'>>(services: Services) {
  const sealingKey = { value: null }
  return { ...services, sealingKey, replicator: new Replicator({ ...services, sealingKey }) }
}
