import { memoryEngine } from '../helpers/memory-engine.ts'
import type { MakeEngine } from './conformance/setup.ts'
import { runStorageFaultTests, runStorageTests } from './conformance.ts'
import { type WithDocument, withDocument } from './memory/document-scope.ts'
import { strictDocuments } from './memory/strict.ts'

const makeMemoryEngine =
  (variant: WithDocument): MakeEngine =>
  async (_t, options) => {
    const engine = memoryEngine({ ...options, withDocument: variant })
    const reopen = async () => {
      await engine.close()
      return engine
    }
    return { engine, reopen, keptContents: async () => engine.keptContents('notes') }
  }

runStorageTests('memory', makeMemoryEngine(withDocument))
runStorageFaultTests('memory', makeMemoryEngine(withDocument))
runStorageTests('strict', makeMemoryEngine(strictDocuments()))
