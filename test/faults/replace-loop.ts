/** Replaces the database `notes` of a folder by one of two copies after the other, until it is killed. */
import { sqliteEngine } from '../../src/storage/sqlite/sqlite-engine.ts'
import { copiesOf } from '../../src/storage/storage-engine.ts'

const [dataDir = '', ...copies] = process.argv.slice(2)
const engine = sqliteEngine({ dataDir })
const catalog = await engine.openCatalog()
for (let n = 0; ; n++) {
  const { draft } = await copiesOf(engine).prepare('notes', copies[n % copies.length] as string)
  process.stdout.write('ready\n')
  await catalog.replace('notes', draft)
  const store = await engine.openDatabase('notes')
  await store.updateLocals([
    { id: '_local/l', decide: () => ({ result: n, write: { rev: 1, body: `{"n":${n}}` } }) },
  ])
  await store.close()
}
