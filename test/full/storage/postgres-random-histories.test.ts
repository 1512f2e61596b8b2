import t from 'tap'
import { runHistoryTests } from '../../storage/conformance.ts'
import { postgresMakers } from '../../storage/postgres-engine.ts'

runHistoryTests('postgres', postgresMakers(t).makeEngine)
