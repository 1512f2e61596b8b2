/** All engines, for tests that must pass with each. */
import type { Test } from 'tap'
import { sqliteEngine } from '../../src/storage/sqlite/sqlite-engine.ts'
import type { StorageEngine } from '../../src/storage/storage-engine.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { temporaryFolder } from '../helpers/server.ts'

type MakeEngine = (t: Pick<Test, 'teardown'>, now?: () => number) => Promise<StorageEngine>

/** Makes an empty engine, by name. The engine is closed and removed at the end of the test. */
export const ENGINES: Readonly<Record<string, MakeEngine>> = {
  memory: async (_t, now) => memoryEngine(now && { now }),
  sqlite: async (t, now) => {
    const dataDir = await temporaryFolder(t)
    const engine = sqliteEngine({ dataDir, ...(now && { now }) })
    t.teardown(() => engine.close())
    return engine
  },
}
