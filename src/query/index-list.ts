/** The json indexes of an open database, read from its design documents. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { kindRange } from '../documents/all-docs-query.ts'
import { MAX_PARSED_AT_ONCE, parseInSteps } from '../documents/json-parser.ts'
import type { DatabaseStore, IdRange } from '../storage/engine.ts'
import { byName } from './index-choice.ts'
import { indexesOf, type MangoIndex, QUERY_LANGUAGE } from './mango-index.ts'

/**
 * The maximum number of indexes of one database, and the maximum size of their definitions together, in characters of
 * JSON, and of each of their design documents. Indexes beyond are not used, since each query looks at all of them in one
 * turn, which takes up to 50 ms.
 */
const MAX_INDEXES = 300
const MAX_CHARS = 300_000
/** Few, since the texts of a page are held together. */
const PAGE_DOCS = 20
const PAGE_CHARS = 1024 * 1024

/**
 * Checks that a database has room for an index.
 * @param indexes the others
 * @param definition the JSON of the new one
 * @param document its design document, with everything that it then holds
 * @throws forbidden
 */
export function requireRoom(indexes: readonly MangoIndex[], definition: object, document: object): void {
  if (sizeOf(document) > MAX_CHARS) {
    throw new CouchError('forbidden', `A design document with indexes may have ${MAX_CHARS} characters.`)
  }
  if (indexes.length >= MAX_INDEXES) {
    throw new CouchError('forbidden', `A database may have ${MAX_INDEXES} indexes.`)
  }
  const chars = indexes.reduce((sum, index) => sum + sizeOf(index.definition), sizeOf(definition))
  if (chars <= MAX_CHARS) return
  throw new CouchError(
    'forbidden',
    `The indexes of a database may have definitions of ${MAX_CHARS} characters.`,
  )
}

function sizeOf(definition: object): number {
  return JSON.stringify(definition).length
}

/** Reads the list when design documents have changed since it was read. */
export class IndexList {
  readonly #store: DatabaseStore
  #version = -1
  #indexes: readonly MangoIndex[] = []
  #reading: Promise<readonly MangoIndex[]> | undefined

  constructor(store: DatabaseStore) {
    this.#store = store
  }

  /** All indexes that were made before the call, by design document and name. */
  async read(): Promise<readonly MangoIndex[]> {
    const { designVersion } = await this.#store.view()
    if (designVersion === this.#version) return this.#indexes
    // A reading under way may have begun before the last change; its end shows the version that it has seen.
    if (this.#reading !== undefined) {
      await this.#reading.catch(() => undefined)
      return this.read()
    }
    this.#reading = this.#readAll(designVersion)
    try {
      return await this.#reading
    } finally {
      this.#reading = undefined
    }
  }

  async #readAll(version: number): Promise<readonly MangoIndex[]> {
    const indexes: MangoIndex[] = []
    const yielder = new Yielder()
    let chars = 0
    for await (const { id, text } of queryDocuments(this.#store)) {
      await yielder.yieldIfDue()
      const parsed = text.length > MAX_PARSED_AT_ONCE ? await parseInSteps(text) : JSON.parse(text)
      for (const index of indexesOf(id, parsed as Record<string, unknown>, this.#store.partitioned)) {
        chars += sizeOf(index.definition)
        if (indexes.length < MAX_INDEXES && chars <= MAX_CHARS) indexes.push(index)
      }
      if (indexes.length >= MAX_INDEXES || chars > MAX_CHARS) break
    }
    this.#indexes = indexes.sort(byName)
    this.#version = version
    return this.#indexes
  }
}

/** The design documents that may be of the language `query`. */
async function* queryDocuments(store: DatabaseStore): AsyncGenerator<{ id: string; text: string }> {
  let range: IdRange = kindRange('design')
  for (let more = true; more; ) {
    const page = await store.readRange(
      range,
      { limit: PAGE_DOCS, chars: PAGE_CHARS, readSet: { body: true } },
      (doc) => ({ id: doc.id, text: doc.body(doc.rev) ?? '' }),
    )
    yield* page.rows.filter(({ text }) => mayHaveIndexes(text))
    more = page.more
    range = { ...range, start: { id: page.rows.at(-1)?.id ?? '', inclusive: false } }
  }
}

/** Most design documents have other languages; they are not parsed. */
function mayHaveIndexes(text: string): boolean {
  return text.length <= MAX_CHARS && (text.includes(QUERY_LANGUAGE) || text.includes('\\u'))
}
