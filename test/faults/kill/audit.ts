/** Holds what a server says after a kill against the ledger. What is wrong comes back as lines. */
import { createHash } from 'node:crypto'
import type { Client } from './client.ts'
import { type Cell, contentOf, type Ledger, type State, type Stub } from './ledger.ts'
import { EMPTY, SHARED, WITH_DOCUMENT } from './writers.ts'

/** Documents asked for at once. */
const KEYS = 500
const MAX_TRIES = 200

interface Row {
  readonly id: string
  readonly seq: string
  readonly rev: string
  readonly isDeleted: boolean
}

interface Info {
  readonly update_seq: string
  readonly doc_count: number
  readonly doc_del_count: number
}

/** What one look at a database's feed tells. */
interface Look {
  readonly info: Info
  readonly rows: readonly Row[]
  readonly lastSeq: string
}

/** The feed of a database as it was last seen. */
interface Feed {
  /** Where the last look ended. */
  token: string
  readonly rows: Map<string, Row>
}

export class Audit {
  readonly #client: Client
  readonly #ledger: Ledger
  readonly #feeds = new Map<string, Feed>()
  /** Cells that were held against what is there; unanswered writes that were found done. */
  checked = 0
  survived = 0

  constructor(client: Client, ledger: Ledger) {
    this.#client = client
    this.#ledger = ledger
  }

  /**
   * Looks at what was written to since the last time.
   * @param isFull at everything that was ever written, and at each feed from its beginning
   * @param others databases that are there and not looked at
   * @returns what is wrong
   */
  async run(databases: readonly string[], isFull: boolean, others: readonly string[]): Promise<string[]> {
    // Each may be another thread's.
    const found = databases.map((database) => this.#database(database, isFull))
    const faults = (await Promise.all(found)).flat()
    for (const [path, cell] of this.#ledger.others) {
      if (isFull || cell.isDirty) this.#settle(cell, await this.#other(path), faults)
    }
    if (isFull) faults.push(...(await this.#names([...databases, ...others])))
    return faults
  }

  /** The feed as the last look found it. @param database that {@link run} has looked at */
  feedOf(database: string): Readonly<Feed> {
    return this.#feeds.get(database) as Feed
  }

  async #database(database: string, isFull: boolean): Promise<string[]> {
    const faults: string[] = []
    const before = this.#feeds.get(database)
    const look = await this.#look(database, isFull ? '0' : (before?.token ?? '0'))
    faults.push(...orderFaults(database, look))
    if (before !== undefined)
      faults.push(...(isFull ? tokenFaults : growthFaults)(database, before, look.rows))
    const rows = isFull ? new Map<string, Row>() : (before?.rows ?? new Map<string, Row>())
    for (const row of look.rows) rows.set(row.id, row)
    const cells = this.#ledger.docs.get(database)
    if (cells !== undefined) await this.#documents(database, cells, rows, isFull, faults)
    this.#feeds.set(database, { token: look.lastSeq, rows })
    const all = [...rows.values()]
    const live = all.filter(({ isDeleted }) => !isDeleted).length
    const counts = `${look.info.doc_count} live, ${look.info.doc_del_count} deleted`
    const counted = `${live} live, ${all.length - live} deleted`
    if (counts !== counted) faults.push(`${database} says it has ${counts}; its feed has ${counted}`)
    return faults
  }

  /** Info and feed of one moment: devices may be at work. */
  async #look(database: string, since: string): Promise<Look> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const info = (await this.#client.get(`/${database}`)).json as Info
      const { json } = await this.#client.get(`/${database}/_changes?style=all_docs&since=${since}`)
      const after = (await this.#client.get(`/${database}`)).json as Info
      if (after.update_seq !== info.update_seq || json.last_seq !== info.update_seq) continue
      return { info, rows: json.results.map(rowOf), lastSeq: json.last_seq }
    }
    throw new Error(`${database} is never at rest`)
  }

  async #documents(
    database: string,
    cells: ReadonlyMap<string, Cell>,
    rows: Map<string, Row>,
    isFull: boolean,
    faults: string[],
  ): Promise<void> {
    const wanted = [...cells].filter(([, cell]) => isFull || cell.isDirty)
    for (let at = 0; at < wanted.length; at += KEYS) {
      const some = wanted.slice(at, at + KEYS)
      const body = { keys: some.map(([id]) => id) }
      const { json } = await this.#client.ask('POST', `/${database}/_all_docs?include_docs=true`, { body })
      for (const [n, [id, cell]] of some.entries()) {
        const row = json.rows[n]
        const wasDirty = cell.isDirty
        this.#settle(cell, stateOf(row), faults)
        if (row.error !== undefined && !isFull) rows.delete(id)
        const inFeed = rows.get(id)
        const listed = row.error === undefined ? `${row.value.rev} ${row.value.deleted === true}` : 'absent'
        const fed = inFeed === undefined ? 'absent' : `${inFeed.rev} ${inFeed.isDeleted}`
        if (listed !== fed) faults.push(`${cell.name} is ${listed}, and ${fed} in the feed`)
        if (wasDirty) await this.#contents(database, row, faults)
      }
    }
    // To that one devices write, too.
    if (!isFull || database === SHARED) return
    for (const id of rows.keys()) if (!cells.has(id)) faults.push(`${database}/${id}: nobody wrote it`)
  }

  #settle(cell: Cell, seen: State, faults: string[]): void {
    const isUnanswered = cell.maybe !== undefined
    const { known } = cell
    const fault = cell.settle(seen)
    this.checked += 1
    if (fault !== null) faults.push(fault)
    else if (isUnanswered && (seen.rev !== known.rev || seen.content !== known.content)) this.survived += 1
  }

  /** Every byte of a document's attachments. */
  async #contents(database: string, row: ListedRow, faults: string[]): Promise<void> {
    const stubs = Object.entries((row.doc?._attachments ?? {}) as Record<string, Stub>)
    for (const [name, { digest, length }] of stubs) {
      const path = `/${database}/${row.id}/${name}`
      const { status, bytes } = await this.#client.ask('GET', path)
      const found = `md5-${createHash('md5').update(bytes).digest('base64')}`
      if (status === 200 && found === digest && bytes.length === length) continue
      faults.push(`${path}: ${status}, ${bytes.length} bytes of ${length}`)
    }
  }

  /** A setting, a `_local` document, or one of the databases that come and go. */
  async #other(path: string): Promise<State> {
    const { status, json } = await this.#client.ask('GET', path)
    if (status !== 200 && status !== 404) throw new Error(`GET ${path}: ${status}`)
    if (status === 404) return { content: null, rev: null }
    if (path.includes('/_config/')) return { content: json, rev: null }
    if (!path.startsWith('/made-')) return { content: json.value ?? null, rev: null }
    const doc = await this.#client.ask('GET', `${path}/doc`)
    const isThere = doc.status === 200 && doc.json.is === path
    if (!isThere && doc.status !== 404) return { content: `a damaged document: ${doc.status}`, rev: null }
    return { content: isThere ? WITH_DOCUMENT : EMPTY, rev: null }
  }

  async #names(databases: readonly string[]): Promise<string[]> {
    const made = [...this.#ledger.others].filter(
      ([path, { known }]) => path.startsWith('/made-') && known.content !== null,
    )
    const wanted = [...databases, ...made.map(([path]) => path.slice(1)), '_users'].sort()
    const listed = ((await this.#client.get('/_all_dbs')).json as string[]).sort()
    return wanted.join() === listed.join() ? [] : [`_all_dbs lists ${listed.join()} for ${wanted.join()}`]
  }
}

interface ListedRow {
  readonly id: string
  readonly error?: string
  readonly value: { readonly rev: string; readonly deleted?: boolean }
  readonly doc: Record<string, unknown> | null
}

function stateOf(row: ListedRow): State {
  if (row.error !== undefined) return { content: null, rev: null }
  if (row.value.deleted) return { content: null, rev: row.value.rev }
  const { doc } = row
  return { content: doc === null ? 'no body' : contentOf(doc), rev: String(doc?._rev) }
}

function rowOf(row: { id: string; seq: string; deleted?: boolean; changes: { rev: string }[] }): Row {
  return { id: row.id, seq: row.seq, rev: row.changes[0]?.rev ?? '', isDeleted: row.deleted === true }
}

export function numberOf(seq: string): number {
  return Number.parseInt(seq, 10)
}

/** A feed ascends, has each document once, and ends with the number that the database tells. */
function orderFaults(database: string, { rows, info, lastSeq }: Look): string[] {
  const numbers = rows.map(({ seq }) => numberOf(seq))
  const isAscending = numbers.every((number, at) => at === 0 || number > (numbers[at - 1] as number))
  const ids = new Set(rows.map(({ id }) => id))
  return [
    ...(isAscending ? [] : [`${database}: its feed does not ascend`]),
    ...(ids.size === rows.length ? [] : [`${database}: a document stands in its feed twice`]),
    ...((numbers.at(-1) ?? 0) > numberOf(info.update_seq) ? [`${database}: a row beyond ${lastSeq}`] : []),
  ]
}

/** What is new stands above everything that was there. */
function growthFaults(database: string, before: Feed, rows: readonly Row[]): string[] {
  const [first] = rows
  const isAbove = first === undefined || numberOf(first.seq) > numberOf(before.token)
  return isAbove ? [] : [`${database}: ${first?.seq} comes after ${before.token}`]
}

/** Who has not changed stands where he stood, with the same token; who has stands higher. */
function tokenFaults(database: string, before: Feed, rows: readonly Row[]): string[] {
  return rows.flatMap(({ id, rev, seq }) => {
    const was = before.rows.get(id)
    if (was === undefined || was.seq === seq) return []
    const isMoved = was.rev !== rev && numberOf(seq) > numberOf(was.seq)
    return isMoved ? [] : [`${database}/${id} was ${was.rev} at ${was.seq} and is ${rev} at ${seq}`]
  })
}
