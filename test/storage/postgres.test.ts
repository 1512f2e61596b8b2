import t from 'tap'
import { runOpenerTests, runStorageCases } from './conformance.ts'
import { postgresMakers } from './postgres-engine.ts'

const { makeEngine, makeData } = postgresMakers(t)

runStorageCases('postgres', makeEngine)
runOpenerTests('postgres', makeData)
