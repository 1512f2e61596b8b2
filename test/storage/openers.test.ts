import { memoryEngine } from '../helpers/memory-engine.ts'
import type { MakeSharedData } from './conformance/openers.ts'
import { runOpenerTests } from './conformance.ts'
import { sharedNetwork } from './memory/network.ts'
import { SharedMemory } from './memory/shared.ts'

const makeSharedMemory: MakeSharedData = async (t, options) => {
  const shared = new SharedMemory()
  const engines = new Map<object, ReturnType<typeof memoryEngine>>()
  t.teardown(() => Promise.all([...engines.values()].map((engine) => engine.close())))
  const open = () => {
    const engine = memoryEngine({ ...options, shared, network: sharedNetwork() })
    engines.set(engine, engine)
    return engine
  }
  return {
    open,
    kill: (engine) => engines.get(engine)?.die(),
    keptContents: async () => open().keptContents('notes'),
  }
}

runOpenerTests('memory', makeSharedMemory)
