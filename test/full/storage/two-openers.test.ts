import type { MakeEngine } from '../../storage/conformance/setup.ts'
import { runStorageFaultTests, runStorageTests } from '../../storage/conformance.ts'
import { type WithDocument, withDocument } from '../../storage/memory/document-scope.ts'
import { SharedMemory } from '../../storage/memory/shared.ts'
import { strictDocuments } from '../../storage/memory/strict.ts'
import { eitherEngine, twoOpeners } from '../../storage/memory/two-openers.ts'

const makeTwoOpeners =
  (variant: WithDocument): MakeEngine =>
  async (_t, options) => {
    const shared = new SharedMemory()
    const open = () => twoOpeners({ ...options, withDocument: variant }, shared)
    let openers = open()
    const reopen = async () => {
      await Promise.all(openers.map((opener) => opener.close()))
      openers = open()
      return eitherEngine(openers)
    }
    return {
      engine: eitherEngine(openers),
      reopen,
      keptContents: async () => openers[0].keptContents('notes'),
    }
  }

runStorageTests('two openers', makeTwoOpeners(strictDocuments()))
// The strict engine repeats a callback, whose second call has no fault.
runStorageFaultTests('two openers', makeTwoOpeners(withDocument))
