/** Reads of single documents: those of one turn of the event loop share a statement, which costs less than several. */
import type { HistoryReadSet } from '../history-store.ts'
import type { Loaded, LoadOptions, LoadRequest } from './document-loader.ts'

/** The maximum number of documents that one statement reads. Each of their bodies is short. */
const MAX_DOCS = 16

type Load = (requests: readonly LoadRequest[], options: LoadOptions) => Promise<Loaded>

interface Shared {
  readonly ids: Set<string>
  readonly loaded: Promise<Loaded>
}

export class TurnReads {
  readonly #load: Load
  /** The statements that can take more documents, by what their readers declare. */
  readonly #open = new Map<HistoryReadSet | undefined, Shared>()

  constructor(load: Load) {
    this.#load = load
  }

  /**
   * Loads a document as a reader of its own: what it has missed is not another's.
   * @param readSet shared by those who give the same object
   */
  async read(id: string, readSet: HistoryReadSet | undefined): Promise<Loaded> {
    let shared = this.#open.get(readSet)
    if (shared === undefined || shared.ids.size >= MAX_DOCS || shared.ids.has(id)) {
      shared = this.#begin(readSet)
      this.#open.set(readSet, shared)
    }
    shared.ids.add(id)
    const { view, docs } = await shared.loaded
    const doc = docs.find((each) => each.id === id)
    return { view, docs: doc === undefined ? [] : [doc], more: null }
  }

  #begin(readSet: HistoryReadSet | undefined): Shared {
    const ids = new Set<string>()
    const loaded = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      if (this.#open.get(readSet)?.ids === ids) this.#open.delete(readSet)
      return this.#load(
        Array.from(ids, (id) => ({ id, readSet })),
        { isShared: true },
      )
    })
    return { ids, loaded }
  }
}
