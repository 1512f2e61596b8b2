import { memoryEngine } from '../helpers/memory-engine.ts'
import { runStorageTests } from './conformance.ts'

runStorageTests('memory', async (_t, options) => {
  const engine = memoryEngine(options)
  const reopen = async () => {
    await engine.close()
    return engine
  }
  const snapshot = async () => engine.snapshot('notes')
  return { engine, reopen, snapshot, keptContents: () => engine.keptContents('notes') }
})
