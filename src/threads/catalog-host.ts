/** The catalog on the thread that holds it. */
import type { Catalog } from '../storage/catalog.ts'
import type { StorageEngine } from '../storage/storage-engine.ts'
import type { CatalogAct } from './wire.ts'

export class CatalogHost {
  readonly #engine: Pick<StorageEngine, 'openCatalog'>
  #catalog: Promise<Catalog> | undefined

  constructor(engine: Pick<StorageEngine, 'openCatalog'>) {
    this.#engine = engine
  }

  /** Does what is asked of it; opens it first where that was not done yet. @throws as the methods of Catalog */
  async act(act: CatalogAct): Promise<unknown> {
    const catalog = await this.#open(act.act === 'open' ? act.serverFile : undefined)
    if (act.act === 'create') return catalog.create(act.name)
    if (act.act === 'delete') return catalog.delete(act.name)
    if (act.act === 'replace') return catalog.replace(act.name, act.draft)
    if (act.act === 'discard') return catalog.discard(act.name, act.draft)
    if (act.act === 'noteUpdated') return catalog.noteUpdated(act.names, act.marks)
    if (act.act === 'readUpdates') return catalog.readUpdates(act.range, act.limit)
    if (act.act === 'readRecords') return catalog.readRecords(act.kind)
    if (act.act === 'writeRecords') return catalog.writeRecords(act.writes)
    if (act.act === 'copy') return catalog.copyTo(act.path)
    return { serverUuid: catalog.serverUuid, databases: await catalog.list() }
  }

  #open(serverFile?: string): Promise<Catalog> {
    this.#catalog ??= this.#engine.openCatalog(serverFile).catch((error: unknown) => {
      this.#catalog = undefined
      throw error
    })
    return this.#catalog
  }
}
