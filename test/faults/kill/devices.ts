/** PouchDB devices that sync live while the server is killed, and how much of it they read again. */
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import PouchDB from 'pouchdb'
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import { type Device, device, forgiveInfo, type LiveSync, liveSync } from '../../protocol/devices.ts'
import { numberOf } from './audit.ts'
import type { Client } from './client.ts'
import { SHARED } from './writers.ts'

/** How often the server's uuid is asked for while the server is down, and how many ms apart. */
const TRIES = 500
const APART = 20

/**
 * PouchDB names a replication by the server's uuid, or, where that has no answer, by the server's address: one of another
 * name, which begins at 0. A server that starts between that question and the next cannot mend it, so the question is
 * asked until it has its answer.
 */
async function answered(url: string, init?: PouchDB.Options): Promise<Response> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await PouchDB.fetch(url, init)
    } catch (error) {
      if (tries === TRIES) throw error
      await sleep(APART)
    }
  }
}

/** Rows of the feed in one batch, PouchDB's own number. */
const BATCH = 100

export class Phone {
  readonly db: Device
  readonly #name: string
  readonly #sync: LiveSync
  #written = 0
  /** Rows of `_changes` that were read. */
  rows = 0
  /** The newest number that an answer has brought. */
  reached = 0
  /** The lowest number that was asked from since the last {@link mark}. */
  lowest = Number.POSITIVE_INFINITY

  private constructor(t: Test, name: string, db: Device, url: string) {
    this.#name = name
    this.db = db
    const there = new PouchDB(`${url}/${SHARED}`, {
      fetch: (path: string, init?: PouchDB.Options) => this.#fetch(path, init),
    })
    forgiveInfo(there)
    this.#sync = liveSync(t, db, there)
  }

  static async start(t: Test, name: string, url: string): Promise<Phone> {
    return new Phone(t, name, await device(t), url)
  }

  async #fetch(url: string, init?: PouchDB.Options): Promise<Response> {
    const { pathname, searchParams } = new URL(url)
    if (pathname === '/') return answered(url, init)
    const isFeed = pathname.endsWith('/_changes')
    if (isFeed) this.lowest = Math.min(this.lowest, numberOf(searchParams.get('since') ?? '0'))
    const answer = await PouchDB.fetch(url, init)
    if (!isFeed || answer.status !== 200) return answer
    const text = await answer.text()
    const { results, last_seq } = JSON.parse(text)
    this.rows += results.length
    this.reached = Math.max(this.reached, numberOf(last_seq))
    return new Response(text, { status: 200, headers: { 'content-type': 'application/json' } })
  }

  get errors(): readonly unknown[] {
    return [...this.#sync.errors, ...this.#sync.denied]
  }

  /** Writes a note, and changes one that it has. */
  async write(): Promise<void> {
    const id = `${this.#name}-${this.#written++}`
    await this.db.put({ _id: id, text: 'from a device' })
    const other = await this.db.get(`${this.#name}-${Math.floor(this.#written / 2)}`).catch(() => null)
    if (other !== null) await this.db.put({ ...other, again: this.#written }).catch(() => undefined)
  }

  /** The server is about to start again. @returns how far it had come */
  mark(): number {
    this.lowest = Number.POSITIVE_INFINITY
    return this.reached
  }

  /**
   * What is wrong with where it went on since the mark: its checkpoint is written after every batch, and it reads one
   * batch ahead of the one that it stores.
   */
  faultsSince(mark: number): string[] {
    const isNear = this.lowest >= mark - 2 * BATCH
    return isNear ? [] : [`${this.#name} had come to ${mark} and began again at ${this.lowest}`]
  }

  async stop(): Promise<void> {
    await this.#sync.stop()
  }
}

/** Waits until every device has the documents of the server, no more and no others. */
export async function untilAllSame(client: Client, phones: readonly Phone[]): Promise<number> {
  const there = async () => (await client.get(`/${SHARED}/_all_docs`)).json.rows.map(brief)
  const agree = async () => {
    const rows = await there()
    for (const { db } of phones)
      if (!isDeepStrictEqual((await db.allDocs()).rows.map(brief), rows)) return false
    return true
  }
  await until('all devices have the same', agree)
  return (await there()).length
}

function brief(row: unknown): readonly [string, string] {
  const { id, value } = row as { id: string; value: { rev: string } }
  return [id, value.rev]
}
