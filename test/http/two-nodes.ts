import type { Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { until } from '../helpers/until.ts'
import { SharedMemory } from '../storage/memory/shared.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

/** Starts two HTTP nodes over one state in memory. Both know the admin `boss`, whose password is `secret`. */
export async function startTwoNodes(t: Test, settings: Record<string, string> = {}) {
  const shared = new SharedMemory()
  const one = await startMemoryServer(t, settings, undefined, { shared })
  const two = await startMemoryServer(t, settings, undefined, { shared })
  const [first, second] = [connect(t, one), connect(t, two)]
  await setAdmin(one.config, 'boss', 'secret')
  await until(async () => (await second('GET', '/_all_dbs', { auth: 'boss:secret' })).status === 200)
  return { one, two, first, second }
}
