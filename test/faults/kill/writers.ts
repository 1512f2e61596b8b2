/** Those who write while the server is killed: each its own documents, one request at a time. */
import { createHash, randomBytes, randomInt } from 'node:crypto'
import type { Client } from './client.ts'
import { type Cell, contentOf, generation, type Ledger } from './ledger.ts'

/** Databases that the writers share; that of the devices has a writer of its own beside them. */
export const NOTES = 'notes'
export const FILES = 'files'
export const PILE = 'pile'
export const SHARED = 'shared'

export interface Writer {
  /** One write, or some that belong together. @throws Unanswered when the server goes away meanwhile */
  step(client: Client): Promise<void>
}

type Members = Record<string, unknown>

const HUNDRED_WORDS = 'words '.repeat(100)

/** How many documents a writer comes back to. */
const KEPT = 40

/** The documents of one writer. */
class Own {
  readonly #ledger: Ledger
  readonly #database: string
  readonly #name: string
  readonly #ids: string[] = []
  #made = 0

  constructor(ledger: Ledger, database: string, name: string) {
    this.#ledger = ledger
    this.#database = database
    this.#name = name
  }

  /** A document that was never written. */
  fresh(): { readonly id: string; readonly cell: Cell } {
    const id = `${this.#name}-${String(this.#made++).padStart(6, '0')}`
    this.#ids.push(id)
    if (this.#ids.length > KEPT) this.#ids.shift()
    return { id, cell: this.#ledger.doc(this.#database, id) }
  }

  /** A document that is there, or a new one. */
  any(share = 0.6): { readonly id: string; readonly cell: Cell } {
    const id = this.#ids[randomInt(KEPT)]
    const cell = id === undefined ? undefined : this.#ledger.doc(this.#database, id)
    const isUsable = cell !== undefined && cell.known.content !== null && Math.random() < share
    return isUsable ? { id: id as string, cell } : this.fresh()
  }

  /** Different ones. */
  some(count: number): { readonly id: string; readonly cell: Cell }[] {
    const picked = new Map(Array.from({ length: count }, () => this.any()).map((one) => [one.id, one]))
    return [...picked.values()]
  }

  members(): Members {
    return { by: this.#name, n: this.#made, salt: randomBytes(6).toString('hex'), text: HUNDRED_WORDS }
  }
}

function revOf(cell: Cell): Members {
  return cell.known.content === null ? {} : { _rev: cell.known.rev }
}

/** PUT and DELETE of one document after the other. */
export function singles(ledger: Ledger, database: string, name: string): Writer {
  const own = new Own(ledger, database, name)
  return {
    async step(client) {
      const { id, cell } = own.any()
      const path = `/${database}/${id}`
      const isDeletion = cell.known.content !== null && Math.random() < 0.1
      const members = own.members()
      cell.will(isDeletion ? null : contentOf(members))
      const got = isDeletion
        ? await client.succeed('DELETE', `${path}?rev=${cell.known.rev}`)
        : await client.succeed('PUT', path, { body: { ...members, ...revOf(cell) } })
      cell.did(got.json.rev)
    },
  }
}

/** `_bulk_docs` with `new_edits` true. */
export function bulks(ledger: Ledger, database: string, name: string): Writer {
  const own = new Own(ledger, database, name)
  return {
    async step(client) {
      const docs = own.some(5 + randomInt(30)).map((one) => ({ ...one, members: own.members() }))
      for (const { cell, members } of docs) cell.will(contentOf(members))
      const sent = docs.map(({ id, cell, members }) => ({ _id: id, ...revOf(cell), ...members }))
      const { json } = await client.succeed('POST', `/${database}/_bulk_docs`, { body: { docs: sent } })
      for (const [at, { id, cell }] of docs.entries()) {
        const row = json[at]
        if (row.id !== id || row.error !== undefined)
          throw new Error(`a row is refused: ${JSON.stringify(row)}`)
        cell.did(row.rev)
      }
    },
  }
}

/** `_bulk_docs` with `new_edits` false, as a replicator pushes. */
export function pushes(ledger: Ledger, database: string, name: string): Writer {
  const own = new Own(ledger, database, name)
  return {
    async step(client) {
      const docs = own.some(5 + randomInt(30)).map(({ cell, id }) => {
        const members = own.members()
        return { cell, members, sent: { _id: id, ...madeRev(cell, members), ...members } }
      })
      for (const { cell, members, sent } of docs) cell.will(contentOf(members), sent._rev)
      const body = { new_edits: false, docs: docs.map(({ sent }) => sent) }
      const { json } = await client.succeed('POST', `/${database}/_bulk_docs`, { body })
      if (json.length > 0) throw new Error(`rows are refused: ${JSON.stringify(json)}`)
      for (const { cell, sent } of docs) cell.did(sent._rev)
    },
  }
}

function madeRev({ known }: Cell, members: Members) {
  const start = generation(known.rev) + 1
  const id = createHash('md5').update(JSON.stringify(members)).digest('hex')
  const ids = [id, ...(known.rev === null ? [] : [known.rev.slice(known.rev.indexOf('-') + 1)])]
  return { _rev: `${start}-${id}`, _revisions: { start, ids } }
}

function stubOf(bytes: Buffer, type: string) {
  const digest = `md5-${createHash('md5').update(bytes).digest('base64')}`
  return { content_type: type, length: bytes.length, digest }
}

/** Documents with their attachment inline. */
export function inlines(ledger: Ledger, database: string, name: string): Writer {
  const own = new Own(ledger, database, name)
  return {
    async step(client) {
      const { id, cell } = own.any()
      const bytes = randomBytes(1000 + randomInt(60_000))
      const members = own.members()
      const type = 'image/png'
      cell.will(contentOf({ ...members, _attachments: { inline: stubOf(bytes, type) } }))
      const _attachments = { inline: { content_type: type, data: bytes.toString('base64') } }
      const body = { ...members, ...revOf(cell), _attachments }
      cell.did((await client.succeed('PUT', `/${database}/${id}`, { body })).json.rev)
    },
  }
}

/** Attachments of several hundred KB by themselves; now and then one takes another's place. */
export function uploads(ledger: Ledger, database: string, name: string): Writer {
  const own = new Own(ledger, database, name)
  return {
    async step(client) {
      const { id, cell } = own.any(0.3)
      await upload(client, cell, `/${database}/${id}`, randomBytes(280_000 + randomInt(200_000)))
    },
  }
}

/** One attachment by itself, as all that its document holds. */
export async function upload(client: Client, cell: Cell, path: string, bytes: Buffer): Promise<void> {
  const type = 'application/x-upload'
  cell.will(contentOf({ _attachments: { alone: stubOf(bytes, type) } }))
  const query = cell.known.content === null ? '' : `?rev=${cell.known.rev}`
  cell.did((await client.succeed('PUT', `${path}/alone${query}`, { body: bytes, type })).json.rev)
}

/** Writes some documents, and purges them. */
export function purges(ledger: Ledger, database: string, name: string): Writer {
  const own = new Own(ledger, database, name)
  return { step: (client) => purgeSome(client, own, database, 20) }
}

async function purgeSome(client: Client, own: Own, database: string, count: number): Promise<void> {
  const docs = Array.from({ length: count }, () => ({ ...own.fresh(), members: own.members() }))
  for (const { cell, members } of docs) cell.will(contentOf(members))
  const sent = docs.map(({ id, members }) => ({ _id: id, ...members }))
  const made = await client.succeed('POST', `/${database}/_bulk_docs`, { body: { docs: sent } })
  for (const [at, { cell }] of docs.entries()) cell.did(made.json[at].rev)
  const body = Object.fromEntries(docs.map(({ id, cell }) => [id, [cell.known.rev]]))
  for (const { cell } of docs) cell.will(null, null)
  await client.succeed('POST', `/${database}/_purge`, { body })
  for (const { cell } of docs) cell.did()
}

/** Documents of a purge that takes several groups of the writer; one request may name 1000 revisions by default. */
export const LARGE_PURGE = 900

export function largePurge(ledger: Ledger, database: string, name: string): Writer {
  const own = new Own(ledger, database, name)
  return { step: (client) => purgeSome(client, own, database, LARGE_PURGE) }
}

/** `_local` documents, as checkpoints are written. */
export function locals(ledger: Ledger, database: string, name: string): Writer {
  return setting(
    ledger,
    () => `/${database}/_local/${name}-${randomInt(5)}`,
    (path, salt, client) => client.succeed('PUT', path, { body: { value: salt } }),
  )
}

/** The security object of a database, with a member that says who wrote it. */
export function securities(ledger: Ledger, database: string): Writer {
  return setting(
    ledger,
    () => `/${database}/_security`,
    (path, salt, client) => client.succeed('PUT', path, { body: { value: salt } }),
  )
}

/** A key of the configuration. */
export function configs(ledger: Ledger, name: string): Writer {
  return setting(
    ledger,
    () => `/_node/_local/_config/faults/${name}-${randomInt(3)}`,
    (path, salt, client) => client.succeed('PUT', path, { body: salt }),
  )
}

function setting(
  ledger: Ledger,
  place: () => string,
  put: (path: string, salt: string, client: Client) => Promise<unknown>,
): Writer {
  return {
    async step(client) {
      const path = place()
      const cell = ledger.other(path)
      const salt = randomBytes(200).toString('hex')
      cell.will(salt, null)
      await put(path, salt, client)
      cell.did()
    },
  }
}

/** How a database of {@link lives} stands. */
export const EMPTY = 'empty'
export const WITH_DOCUMENT = 'with its document'

/** Databases that are made, get a document, and are deleted, some of them, and made again. */
export function lives(ledger: Ledger, name: string): Writer {
  return {
    async step(client) {
      const path = `/made-${name}-${randomInt(6)}`
      const cell = ledger.other(path)
      if (cell.known.content === null) {
        await live(cell, EMPTY, client.succeed('PUT', path))
      } else if (cell.known.content === EMPTY) {
        await live(cell, WITH_DOCUMENT, client.succeed('PUT', `${path}/doc`, { body: { is: path } }))
      } else await live(cell, null, client.succeed('DELETE', path))
    },
  }
}

async function live(cell: Cell, content: string | null, write: Promise<unknown>): Promise<void> {
  cell.will(content, null)
  await write
  cell.did()
}
