import t from 'tap'
import type { MakeEngine } from '../../storage/conformance/setup.ts'
import { runHistoryTests, runStorageCases } from '../../storage/conformance.ts'
import { eitherEngine } from '../../storage/memory/two-openers.ts'
import { postgresMakers } from '../../storage/postgres-engine.ts'

const { makeData } = postgresMakers(t)

/** Two engines over one store, as two nodes have them: each call goes through one of them, at random. */
const makeTwoNodes: MakeEngine = async (t, options) => {
  const data = await makeData(t, options)
  const open = () => [data.open(), data.open()] as const
  let engines = open()
  const reopen = async () => {
    await Promise.all(engines.map((engine) => engine.close()))
    engines = open()
    return eitherEngine(engines)
  }
  return { engine: eitherEngine(engines), reopen, keptContents: data.keptContents }
}

// A watcher of both catalogs cannot tell a change that one hears late from the same change made again by the other.
runStorageCases('two nodes over PostgreSQL', makeTwoNodes, ['records of the catalog'])
runHistoryTests('two nodes over PostgreSQL', makeTwoNodes)
