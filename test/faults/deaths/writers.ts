/**
 * Who writes while threads die. A write is acknowledged, or refused with 503, or its connection breaks; of the last
 * two nobody knows whether it was done, so its writer looks, and finds it whole or not at all.
 */
import { createHash, randomBytes, randomInt } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { type Client, type Got, Unanswered } from '../kill/client.ts'
import { generation } from '../kill/ledger.ts'

const DOCUMENTS = 6
const BULK = 12
/** Taken in by several pieces of work of the database's thread. */
const UPLOAD_BYTES = 3_000_000
/** Between two uploads, so that they do not fill the disk. */
const UPLOAD_PAUSE_MS = 150

/** What became of requests to one database. */
export class Tally {
  acknowledged = 0
  /** Answered 503, or broken off. */
  refused = 0
  /** Of these, what was found done. */
  survived = 0
  readonly faults: string[] = []

  fault(what: string, got: Pick<Got, 'status' | 'bytes'>): void {
    this.faults.push(`${what}: ${got.status} ${got.bytes.subarray(0, 200)}`)
  }
}

export interface Writer {
  step(): Promise<void>
  /** Holds what is there against what was acknowledged. */
  check(): Promise<void>
}

export interface WriterOptions {
  readonly client: Client
  readonly database: string
  readonly tally: Tally
  /** The generation of the newest revision of each document that is acknowledged. */
  readonly acknowledged: Map<string, number>
}

/** @returns null when nobody knows what became of it: 503, or no answer */
async function asked(
  client: Client,
  tally: Tally,
  ...sent: Parameters<Client['write']>
): Promise<Got | null> {
  const got = await client.write(...sent).catch((error: unknown) => {
    if (error instanceof Unanswered) return null
    throw error
  })
  if (got !== null && got.status !== 503) return got
  tally.refused += 1
  if (got !== null && got.json?.error !== 'service_unavailable') tally.fault('a refusal', got)
  await delay(2)
  return null
}

/** Reads until it is told: with 200 or 404. */
async function read(client: Client, path: string): Promise<Got> {
  for (;;) {
    const got = await client.ask('GET', path).catch(() => null)
    if (got !== null && got.status !== 503) return got
    await delay(2)
  }
}

/** One document after the other, on what was last known of it. */
export function singles({ client, database, tally, acknowledged }: WriterOptions, name: string): Writer {
  const known = new Map<string, { readonly n: number; readonly rev: string }>()
  let count = 0
  const seen = async (id: string) => {
    const got = await read(client, `/${database}/${id}`)
    if (got.status !== 200 && got.status !== 404) tally.fault(`GET ${id}`, got)
    return got.status === 200 ? { n: got.json.n as number, rev: got.json._rev as string } : null
  }
  const note = (id: string, now: { readonly n: number; readonly rev: string }) => {
    known.set(id, now)
    acknowledged.set(id, generation(now.rev))
  }
  return {
    async step() {
      const id = `${name}-${randomInt(DOCUMENTS)}`
      const before = known.get(id)
      const n = ++count
      const body = { n, text: 'x'.repeat(randomInt(2000)), ...(before && { _rev: before.rev }) }
      const got = await asked(client, tally, 'PUT', `/${database}/${id}`, { body })
      if (got?.status === 201) {
        tally.acknowledged += 1
        note(id, { n, rev: got.json.rev })
        return
      }
      if (got !== null) tally.fault(`PUT ${id}`, got)
      const now = await seen(id)
      const isDone = now?.n === n
      if (!isDone && now?.rev !== before?.rev) tally.faults.push(`${id} is ${now?.rev}, not ${before?.rev}`)
      if (isDone) tally.survived += 1
      if (now !== null) note(id, now)
    },
    async check() {
      for (const [id, { rev }] of known) {
        const now = await seen(id)
        if (now?.rev !== rev) tally.faults.push(`${id}: acknowledged ${rev}, found ${now?.rev}`)
      }
    },
  }
}

/** New documents, a dozen at once; of a bulk that is refused each is there or not. */
export function bulks({ client, database, tally, acknowledged }: WriterOptions, name: string): Writer {
  const done: string[] = []
  let count = 0
  return {
    async step() {
      const docs = Array.from({ length: BULK }, () => ({ _id: `${name}-${++count}`, is: 'whole' }))
      const got = await asked(client, tally, 'POST', `/${database}/_bulk_docs`, { body: { docs } })
      if (got === null) return
      const isWhole = got.status === 201 && Array.isArray(got.json) && got.json.length === BULK
      if (!isWhole || got.json.some(({ ok }: { ok?: boolean }) => !ok)) tally.fault('a bulk', got)
      tally.acknowledged += 1
      for (const { _id } of docs) {
        done.push(_id)
        acknowledged.set(_id, 1)
      }
    },
    async check() {
      const { json } = await client.ask('POST', `/${database}/_all_docs`, { body: { keys: done } })
      for (const [n, row] of json.rows.entries()) {
        if (row.error !== undefined) tally.faults.push(`${done[n]} of an acknowledged bulk: ${row.error}`)
      }
    },
  }
}

/** Attachments, each of its own document: all its bytes are there, or none. */
export function uploads({ client, database, tally, acknowledged }: WriterOptions, name: string): Writer {
  const sent = new Map<string, { readonly sum: string; readonly isSure: boolean }>()
  let count = 0
  return {
    async step() {
      await delay(UPLOAD_PAUSE_MS)
      const id = `${name}-${++count}`
      const bytes = randomBytes(UPLOAD_BYTES)
      const got = await asked(client, tally, 'PUT', `/${database}/${id}/file`, {
        body: bytes,
        type: 'application/x-y',
      })
      if (got !== null && got.status !== 201) tally.fault(`upload ${id}`, got)
      const isSure = got?.status === 201
      sent.set(id, { sum: sumOf(bytes), isSure })
      if (!isSure) return
      tally.acknowledged += 1
      acknowledged.set(id, 1)
    },
    async check() {
      for (const [id, { sum, isSure }] of sent) {
        const got = await client.ask('GET', `/${database}/${id}/file`)
        if (got.status === 404 && !isSure) continue
        if (got.status !== 200 || sumOf(got.bytes) !== sum) tally.faults.push(`upload ${id}: ${got.status}`)
        else if (!isSure) tally.survived += 1
      }
    },
  }
}

function sumOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
