import type { MakeEngine } from '../../storage/conformance/setup.ts'
import { runStorageTests } from '../../storage/conformance.ts'
import { SharedMemory } from '../../storage/memory/shared.ts'
import { eitherEngine, twoOpeners } from '../../storage/memory/two-openers.ts'

const makeTwoOpeners: MakeEngine = async (_t, options) => {
  const shared = new SharedMemory()
  let openers = twoOpeners(options, shared)
  const reopen = async () => {
    await Promise.all(openers.map((opener) => opener.close()))
    openers = twoOpeners(options, shared)
    return eitherEngine(openers)
  }
  return { engine: eitherEngine(openers), reopen, keptContents: () => openers[0].keptContents('notes') }
}

runStorageTests('two openers', makeTwoOpeners)
