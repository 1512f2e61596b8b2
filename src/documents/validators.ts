/** The `validate_doc_update` functions of a database, kept while its design documents stay as they are. */
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import type { UserFunction } from '../sandbox/sandbox.ts'
import type { DatabaseStore, DocState } from '../storage/engine.ts'
import { spliceDocument } from './body.ts'
import { languageOf } from './design-docs.ts'
import { kindRange } from './id-range.ts'

const MEMBER = 'validate_doc_update'
const PAGE_ROWS = 100
/** How often the list is read before it is given up because design documents change in the middle of it. */
const ATTEMPTS = 5
/** Characters of design documents that are kept between requests; a longer list is read for each. */
const MAX_KEPT = 2 * 1024 * 1024

/** The functions that a document must pass, in the order of their design documents' ids. */
export interface ValidatorList {
  /** The store's version of the design documents that they were read from. */
  readonly designVersion: number
  /** The database's name; empty when there are no functions. */
  readonly database: string
  /** Names the functions: two lists with the same key hold the same. */
  readonly key: string
  readonly functions: readonly UserFunction[]
}

export class Validators {
  readonly #store: DatabaseStore
  readonly #incarnation: number
  readonly #mayRun: (id: string, body: string) => boolean
  #database: string | undefined
  #known: ValidatorList | null = null
  #reading: Promise<ValidatorList> | null = null

  /**
   * @param incarnation of the database whose documents `store` holds
   * @param mayRun whether the function of a design document, by its id and stored text, has a say; always the same
   */
  constructor(
    store: DatabaseStore,
    incarnation: number,
    mayRun: (id: string, body: string) => boolean = () => true,
  ) {
    this.#store = store
    this.#incarnation = incarnation
    this.#mayRun = mayRun
  }

  /** The list as it was last read, which may be outdated; null when there is none. */
  get known(): ValidatorList | null {
    return this.#known
  }

  /**
   * Reads the list; calls while it is read share the answer.
   * @throws contended when the design documents do not stand still
   */
  read(): Promise<ValidatorList> {
    this.#reading ??= this.#readList().finally(() => {
      this.#reading = null
    })
    return this.#reading
  }

  async #readList(): Promise<ValidatorList> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const list = await this.#readAtOneVersion()
      if (list === null) continue
      const chars = list.functions.reduce((sum, { source }) => sum + source.length, 0)
      this.#known = chars <= MAX_KEPT ? list : null
      return list
    }
    throw new CouchError('contended')
  }

  /** null when the design documents changed between two pages. */
  async #readAtOneVersion(): Promise<ValidatorList | null> {
    const functions: UserFunction[] = []
    const breath = new Breath()
    let range = kindRange('design')
    let designVersion: number | null = null
    for (;;) {
      await breath.take()
      const paging = { limit: PAGE_ROWS, touches: { body: true }, enough: () => breath.isDue }
      const { rows, more, view } = await this.#store.readRange(range, paging, (doc) => ({
        id: doc.id,
        found: this.#functionOf(doc),
      }))
      designVersion ??= view.designVersion
      if (view.designVersion !== designVersion) return null
      for (const { found } of rows) if (found !== null) functions.push(found)
      const last = rows.at(-1)
      if (!more || last === undefined) break
      range = { ...range, start: { id: last.id, inclusive: false } }
    }
    const key = JSON.stringify(functions.map(({ ddoc, rev }) => [ddoc, rev]))
    const database = functions.length === 0 ? '' : await this.#name()
    return { designVersion, database, key, functions }
  }

  async #name(): Promise<string> {
    this.#database ??= (await this.#store.info()).name
    return this.#database
  }

  #functionOf(doc: DocState): UserFunction | null {
    const body = doc.body(doc.rev) ?? '{}'
    if (!this.#mayRun(doc.id, body)) return null
    // A member's name stands in the text as it is unless something in it is escaped; most have no such member.
    if (!body.includes(`"${MEMBER}"`) && !body.includes('\\u')) return null
    const members = JSON.parse(body) as Record<string, unknown>
    if (typeof members[MEMBER] !== 'string' || languageOf(members) !== 'javascript') return null
    const source = spliceDocument({ id: doc.id, rev: doc.rev, body })
    return { database: this.#incarnation, ddoc: doc.id, rev: doc.rev, path: [MEMBER], source }
  }
}
