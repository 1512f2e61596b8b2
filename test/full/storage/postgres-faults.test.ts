import t from 'tap'
import { runStorageFaultTests } from '../../storage/conformance.ts'
import { postgresMakers } from '../../storage/postgres-engine.ts'

runStorageFaultTests('postgres', postgresMakers(t).makeEngine)
