import { memoryEngine } from '../helpers/memory-engine.ts'
import type { MakeEngine } from './conformance/setup.ts'
import { runStorageFaultTests, runStorageTests } from './conformance.ts'
import { type Lend, lend } from './memory/lending.ts'
import { strictLending } from './memory/strict.ts'

const makeMemoryEngine =
  (lendBy: Lend): MakeEngine =>
  async (_t, options) => {
    const engine = memoryEngine({ ...options, lend: lendBy })
    const reopen = async () => {
      await engine.close()
      return engine
    }
    return { engine, reopen, keptContents: async () => engine.keptContents('notes') }
  }

runStorageTests('memory', makeMemoryEngine(lend))
runStorageFaultTests('memory', makeMemoryEngine(lend))
runStorageTests('strict', makeMemoryEngine(strictLending()))
