import { join } from 'node:path'
import { FileErrors, PageCaches } from '../../src/storage/sqlite/database-access.ts'
import { SqliteIndexStores } from '../../src/storage/sqlite/index-stores.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { runIndexTests } from './index-conformance.ts'

runIndexTests('sqlite', {
  sharedOpeners: false,
  many: 50_000,
  create: async (t, onOperation) => {
    const folder = join(await temporaryFolder(t), 'indexes')
    const options = { folder, errors: new FileErrors(), onOperation }
    return { open: async () => new SqliteIndexStores({ ...options, caches: new PageCaches() }) }
  },
})
