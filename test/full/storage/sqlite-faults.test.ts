import { runStorageFaultTests } from '../../storage/conformance.ts'
import { makeSqliteEngine } from '../../storage/sqlite-engine.ts'

runStorageFaultTests('sqlite', makeSqliteEngine)
