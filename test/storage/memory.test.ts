import { memoryEngine } from '../helpers/memory-engine.ts'
import type { MakeEngine } from './conformance/setup.ts'
import { runStorageFaultTests, runStorageTests } from './conformance.ts'

const makeMemoryEngine: MakeEngine = async (_t, options) => {
  const engine = memoryEngine(options)
  const reopen = async () => {
    await engine.close()
    return engine
  }
  const snapshot = async () => engine.snapshot('notes')
  return { engine, reopen, snapshot, keptContents: () => engine.keptContents('notes') }
}

runStorageTests('memory', makeMemoryEngine)
runStorageFaultTests('memory', makeMemoryEngine)
