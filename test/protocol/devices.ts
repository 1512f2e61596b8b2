/** PouchDB on a device: databases of both adapters, remotes whose requests are recorded, live syncs, and waiting. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import type { Test } from 'tap'
import { temporaryFolder } from '../helpers/server.ts'

PouchDB.plugin(memoryAdapter)

export type Device = PouchDB.Database

export const ADAPTERS = ['memory', 'leveldb'] as const
export type Adapter = (typeof ADAPTERS)[number]

/** An empty database on a device, destroyed at the end of the test. */
export async function device(
  t: Test,
  adapter: Adapter = 'memory',
  options: PouchDB.Options = {},
): Promise<Device> {
  const db =
    adapter === 'memory'
      ? new PouchDB(`device-${randomUUID()}`, { ...options, adapter })
      : new PouchDB(join(await temporaryFolder(t), 'device'), { ...options, adapter })
  t.teardown(() => db.destroy())
  // Each live sync listens to the database; two of them make PouchDB warn of a leak.
  db.setMaxListeners(50)
  return db
}

/** A request of a device, and its answer. */
export interface Seen {
  readonly method: string
  readonly path: string
  readonly query: URLSearchParams
  readonly body: string | undefined
  /** 0 if there is no answer, or not yet. */
  status: number
}

export interface Remote {
  readonly db: Device
  /** Every request so far, in order. */
  readonly seen: Seen[]
}

interface Sent extends PouchDB.Options {
  readonly method?: string
  readonly body?: string
}

/** The database at an address (`http://host:port/notes`) as a device sees it. */
export function remote(address: string, options: PouchDB.Options = {}): Remote {
  const seen: Seen[] = []
  const fetch = async (url: string, init?: Sent): Promise<Response> => {
    const { pathname, searchParams } = new URL(url)
    const entry: Seen = {
      method: init?.method ?? 'GET',
      path: pathname,
      query: searchParams,
      body: init?.body,
      status: 0,
    }
    seen.push(entry)
    const answer = await PouchDB.fetch(url, init)
    entry.status = answer.status
    return answer
  }
  const db = new PouchDB(address, { ...options, fetch })
  forgiveInfo(db)
  return { db, seen }
}

/**
 * Handles a rejection that PouchDB ignores: after every batch, it calls the source's `info()`. If the server stops at
 * that moment, the unhandled rejection would end the Node process.
 */
export function forgiveInfo(db: Device): void {
  const info = db.info.bind(db)
  // `compact()` calls it with a callback.
  db.info = (...given: Parameters<typeof info>) => {
    const asked = info(...given)
    const plainThen = asked.then.bind(asked)
    const then: typeof plainThen = (done, failed) => {
      const next = plainThen(done, failed)
      next.catch(() => undefined)
      return next
    }
    return Object.defineProperty(asked, 'then', { value: then })
  }
}

/** The `since` of every changes request, in order. */
export function sinces({ seen }: Remote): string[] {
  return seen.filter(({ path }) => path.endsWith('/_changes')).map(({ query }) => query.get('since') ?? '')
}

/** A live sync with retries, cancelled at the end of the test. */
export interface LiveSync {
  /** Rows the server refused. */
  readonly denied: unknown[]
  readonly errors: unknown[]
  /** Ends it; resolves when both directions have ended. */
  stop(): Promise<void>
}

export function liveSync(t: Test, local: Device, other: Device): LiveSync {
  const denied: unknown[] = []
  const errors: unknown[] = []
  const sync = local.sync(other, { live: true, retry: true, back_off_function: backOff })
  sync.on('denied', (row) => denied.push(row))
  sync.on('error', (error) => errors.push(error))
  const ended = sync.then(
    () => undefined,
    () => undefined,
  )
  const stop = async () => {
    sync.cancel()
    await ended
  }
  t.teardown(stop)
  return { denied, errors, stop }
}

/** Shorter than PouchDB's own back-off, which begins with up to two seconds. */
function backOff(before: number): number {
  return Math.min(500, before === 0 ? 20 : before * 2)
}

/** Asserts that a call of PouchDB fails with an error that has these members. */
export async function rejectsWith(t: Test, call: Promise<unknown>, members: object): Promise<void> {
  const outcome = await call.then(
    () => ({ status: 'no error' }),
    (error: unknown) => error,
  )
  t.match(outcome, members)
}

/** A document's members without those that begin with `_`. */
export function body(doc: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(doc).filter(([name]) => !name.startsWith('_')))
}
