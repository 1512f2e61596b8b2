/** The databases that the HTTP thread knows, by name and by incarnation. */
import { type DatabaseEntry, type NameRange, namesInRange } from '../storage/catalog.ts'
import type { DatabaseProxy } from './database-proxy.ts'

/** Names that are read at once. */
const NAMES_PAGE = 1000

export class DatabaseList {
  readonly #byName = new Map<string, DatabaseProxy>()
  readonly #byIncarnation = new Map<number, DatabaseProxy>()
  readonly #underWay: () => ReadonlySet<string>
  #sorted: readonly string[] | undefined

  /** @param underWay databases that are being replaced: they are listed, but not found */
  constructor(underWay: () => ReadonlySet<string>) {
    this.#underWay = underWay
  }

  enter(proxy: DatabaseProxy): void {
    this.#byName.set(proxy.name, proxy)
    this.#byIncarnation.set(proxy.incarnation, proxy)
    this.#sorted = undefined
  }

  leave({ name, incarnation }: DatabaseEntry): void {
    this.#byName.delete(name)
    this.#byIncarnation.delete(incarnation)
    this.#sorted = undefined
  }

  named(name: string): DatabaseProxy | undefined {
    return this.#byName.get(name)
  }

  ofIncarnation(incarnation: number): DatabaseProxy | undefined {
    return this.#byIncarnation.get(incarnation)
  }

  all(): Iterable<DatabaseProxy> {
    return this.#byName.values()
  }

  async has(name: string): Promise<boolean> {
    return this.#byName.has(name) || this.#underWay().has(name)
  }

  async count(): Promise<number> {
    return this.#names().length
  }

  async names(range: NameRange, limit: number): Promise<readonly string[]> {
    return namesInRange(this.#names(), range, limit)
  }

  async *allNames(range: NameRange = {}): AsyncGenerator<string> {
    let page = await this.names(range, NAMES_PAGE)
    while (page.length > 0) {
      yield* page
      page = await this.names({ ...range, after: page.at(-1) as string }, NAMES_PAGE)
    }
  }

  /** Legal names are ASCII, so the order of UTF-16 units is the order of bytes. */
  #names(): readonly string[] {
    const underWay = this.#underWay()
    if (underWay.size > 0) return [...new Set([...this.#byName.keys(), ...underWay])].sort()
    this.#sorted ??= [...this.#byName.keys()].sort()
    return this.#sorted
  }
}
