/** Reads of single documents: those of one turn of the event loop share a statement, which costs less than several. */
import type { HistoryTouches } from '../history-store.ts'
import type { Loaded, LoadOptions, Wanted } from './document-loader.ts'

/** The maximum number of documents that one statement reads. Each of their bodies is short. */
const MAX_DOCS = 16

type Load = (wanted: readonly Wanted[], options: LoadOptions) => Promise<Loaded>

interface Shared {
  readonly ids: Set<string>
  readonly loaded: Promise<Loaded>
}

export class TurnReads {
  readonly #load: Load
  /** The statements that can take more documents, by what their readers declare. */
  readonly #open = new Map<HistoryTouches | undefined, Shared>()

  constructor(load: Load) {
    this.#load = load
  }

  /**
   * Loads a document as a reader of its own: what it has missed is not another's.
   * @param touches shared by those who give the same object
   */
  async read(id: string, touches: HistoryTouches | undefined): Promise<Loaded> {
    let shared = this.#open.get(touches)
    if (shared === undefined || shared.ids.size >= MAX_DOCS || shared.ids.has(id)) {
      shared = this.#begin(touches)
      this.#open.set(touches, shared)
    }
    shared.ids.add(id)
    const { view, docs } = await shared.loaded
    const doc = docs.find((each) => each.id === id)
    return { view, docs: doc === undefined ? [] : [doc], more: null }
  }

  #begin(touches: HistoryTouches | undefined): Shared {
    const ids = new Set<string>()
    const loaded = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      if (this.#open.get(touches)?.ids === ids) this.#open.delete(touches)
      return this.#load(
        Array.from(ids, (id) => ({ id, touches })),
        { isShared: true },
      )
    })
    return { ids, loaded }
  }
}
