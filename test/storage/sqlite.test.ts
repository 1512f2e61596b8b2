import { runStorageTests } from './conformance.ts'
import { makeSqliteEngine } from './sqlite-engine.ts'

runStorageTests('sqlite', makeSqliteEngine)
