import t from 'tap'
import { runHistoryTests, runStorageFaultTests } from '../../storage/conformance.ts'
import { postgresMakers } from '../../storage/postgres-engine.ts'

const { makeEngine } = postgresMakers(t)

runHistoryTests('postgres', makeEngine)
runStorageFaultTests('postgres', makeEngine)
