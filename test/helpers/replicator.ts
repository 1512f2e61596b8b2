/** A replicator over the services of a test's server. */
import { bodyFilesOf } from '../../src/config/settings.ts'
import { AMPLE_SPACE } from '../../src/core/types.ts'
import { Replicator, type ReplicatorOptions } from '../../src/replication/replicator.ts'

type Needed = Omit<ReplicatorOptions, 'sealingKey' | 'files'> & { readonly tmpDir: string }

/** Adds a replicator to the services of a test's server. */
export function withReplicator<Services extends Needed>(services: Services) {
  const sealingKey = { value: null }
  const files = bodyFilesOf(services.config, () => AMPLE_SPACE, services.tmpDir)
  return { ...services, sealingKey, replicator: new Replicator({ ...services, sealingKey, files }) }
}
