/** The index stores of one database: a folder with a file for each. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { IndexStore, IndexStores } from '../index-store.ts'
import type { FileErrors, PageCaches } from './database-access.ts'
import { removeBuild } from './index-build.ts'
import { removeFile } from './index-file.ts'
import { SqliteIndexStore } from './index-store.ts'
import { fileBytes } from './page-copy.ts'

const SUFFIX = '.sqlite'
/** The maximum number of open stores of one database. */
const MAX_OPEN = 16

interface StoresOptions {
  readonly folder: string
  readonly caches: PageCaches
  readonly errors: FileErrors
  readonly onOperation?: ((operation: string) => void) | undefined
}

export class SqliteIndexStores implements IndexStores {
  readonly #options: StoresOptions
  readonly #stores = new Map<string, SqliteIndexStore>()
  /** The stores whose files are open, least recently used first. */
  readonly #recent = new Set<SqliteIndexStore>()

  constructor(options: StoresOptions) {
    this.#options = options
  }

  open(signature: string, indexes: number): IndexStore {
    const store = this.#stores.get(signature) ?? this.#add(signature, indexes)
    this.#recent.delete(store)
    this.#recent.add(store)
    for (const oldest of this.#recent) {
      if (this.#recent.size <= MAX_OPEN) break
      this.#recent.delete(oldest)
      oldest.rest()
    }
    return store
  }

  #add(signature: string, indexes: number): SqliteIndexStore {
    const { caches, errors, onOperation } = this.#options
    const store = new SqliteIndexStore({ path: this.#path(signature), indexes, caches, errors, onOperation })
    this.#stores.set(signature, store)
    return store
  }

  async signatures(): Promise<string[]> {
    const signatures = this.#files().map((file) => file.slice(0, file.indexOf(SUFFIX)))
    return [...new Set(signatures)]
  }

  async remove(signature: string): Promise<void> {
    const store = this.#stores.get(signature)
    if (store !== undefined) {
      store.close()
      this.#recent.delete(store)
      this.#stores.delete(signature)
    }
    removeFile(this.#path(signature))
    removeBuild(this.#path(signature))
  }

  async discard(signature: string): Promise<void> {
    const store = this.#stores.get(signature)
    if (store !== undefined) store.discard()
    else removeFile(this.#path(signature))
  }

  async fileBytes(): Promise<number> {
    for (const store of this.#recent) store.trim()
    return this.#files().reduce((bytes, file) => bytes + fileBytes(join(this.#options.folder, file)), 0)
  }

  close(): void {
    for (const store of this.#stores.values()) store.close()
    this.#stores.clear()
    this.#recent.clear()
  }

  #path(signature: string): string {
    return join(this.#options.folder, signature + SUFFIX)
  }

  /** The names of all files; none if the folder is missing. */
  #files(): string[] {
    try {
      return readdirSync(this.#options.folder)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
      throw error
    }
  }
}
