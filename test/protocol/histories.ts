/** The complete histories of documents on a device or the server, for comparison. */
import { isDeepStrictEqual } from 'node:util'
import type { Test } from 'tap'
import { Agent, request } from 'undici'
import { until } from '../helpers/until.ts'
import { body, type Device } from './devices.ts'

/** How many documents are read at the same time. */
const AT_A_TIME = 8

/** A leaf with its ancestry, body and attachments. */
export interface Leaf {
  readonly rev: string
  readonly deleted: boolean
  /** The ids of its ancestors, newest first, itself included. */
  readonly ancestry: readonly string[]
  readonly body: unknown
  /** Name and digest of each attachment. */
  readonly attachments: Readonly<Record<string, string>>
}

/** By document id; leaves by revision. `winner` is null when the document is deleted. */
export type Histories = Record<string, { readonly winner: string | null; readonly leaves: readonly Leaf[] }>

interface OpenedRev {
  readonly _rev: string
  readonly _deleted?: boolean
  readonly _revisions: { readonly start: number; readonly ids: readonly string[] }
  readonly _attachments?: Readonly<Record<string, { readonly digest: string }>>
}

interface Source {
  /** The ids of all documents, deleted ones too. */
  ids(): Promise<readonly string[]>
  /** The winners of the live documents among these. */
  winners(ids: readonly string[]): Promise<ReadonlyMap<string, string>>
  open(id: string): Promise<readonly { readonly ok?: OpenedRev }[]>
}

/** The histories on a device, by `_changes`, `_all_docs` and `open_revs=all&revs=true`. */
export function deviceHistories(db: Device): Promise<Histories> {
  return read({
    ids: async () => (await db.changes({ since: 0, style: 'all_docs' })).results.map(({ id }) => id),
    // By keys, because PouchDB's ranges miss ids that begin beyond U+00FF.
    winners: async (ids) => {
      const { rows } = await db.allDocs({ keys: [...ids] })
      return new Map(
        rows.flatMap((row) => ('id' in row && !row.value.deleted ? [[row.id, row.value.rev] as const] : [])),
      )
    },
    open: async (id) =>
      (await db.get(id, { open_revs: 'all', revs: true })) as unknown as { ok: OpenedRev }[],
  })
}

/** The histories on the server, by the same three over HTTP. */
export async function serverHistories(
  server: { readonly url: string },
  database: string,
): Promise<Histories> {
  const agent = new Agent({ connections: AT_A_TIME })
  const get = async <T>(path: string): Promise<T> => {
    const { statusCode, body: bytes } = await request(`${server.url}/${database}/${path}`, {
      dispatcher: agent,
    })
    const answer = await bytes.json()
    if (statusCode !== 200) throw new Error(`${path}: ${statusCode} ${JSON.stringify(answer)}`)
    return answer as T
  }
  const histories = read({
    ids: async () => {
      const { results } = await get<{ results: { id: string }[] }>('_changes?style=all_docs')
      return results.map(({ id }) => id)
    },
    winners: async () => {
      const { rows } = await get<{ rows: { id: string; value: { rev: string } }[] }>('_all_docs')
      return new Map(rows.map(({ id, value }) => [id, value.rev]))
    },
    open: (id) => get(`${encodeURIComponent(id)}?open_revs=all&revs=true`),
  })
  return histories.finally(() => agent.destroy())
}

async function read(source: Source): Promise<Histories> {
  const ids = [...(await source.ids())].sort()
  const winners = await source.winners(ids)
  const histories: Histories = Object.fromEntries(ids.map((id) => [id, { winner: null, leaves: [] }]))
  const waiting = [...ids]
  const work = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const leaves = (await source.open(id)).flatMap(({ ok }) => (ok === undefined ? [] : [leafOf(ok)]))
      histories[id] = { winner: winners.get(id) ?? null, leaves: sortedOnce(leaves) }
    }
  }
  await Promise.all(Array.from({ length: AT_A_TIME }, work))
  return histories
}

/** PouchDB can list a leaf twice. */
function sortedOnce(leaves: readonly Leaf[]): Leaf[] {
  const byRev = new Map(leaves.map((leaf) => [leaf.rev, leaf]))
  return [...byRev.values()].sort((a, b) => (a.rev < b.rev ? -1 : 1))
}

function leafOf(doc: OpenedRev): Leaf {
  return {
    rev: doc._rev,
    deleted: doc._deleted === true,
    ancestry: doc._revisions.ids,
    body: body(doc),
    attachments: Object.fromEntries(
      Object.entries(doc._attachments ?? {}).map(([name, { digest }]) => [name, digest]),
    ),
  }
}

/** Asserts that devices and server have the same leaves, ancestry, bodies and winners; @returns them. */
export async function sameEverywhere(
  t: Test,
  {
    server,
    database,
    devices,
  }: { server: { readonly url: string }; database: string; devices: readonly Device[] },
): Promise<Histories> {
  const there = await serverHistories(server, database)
  for (const [at, db] of devices.entries()) {
    // As a list, because an id like `constructor` is also a member of any object.
    const here = Object.entries(await deviceHistories(db))
    t.strictSame(here, Object.entries(there), `device ${at + 1} has what the server has`)
  }
  return there
}

/** Waits until devices and server agree, for live syncs. At the deadline, fails with the difference. */
export async function untilSame(
  t: Test,
  all: { server: { readonly url: string }; database: string; devices: readonly Device[] },
  isDone: (histories: Histories) => boolean = () => true,
): Promise<Histories> {
  const agree = async () => {
    const there = await serverHistories(all.server, all.database).catch(() => null)
    if (there === null) return false
    if (!isDone(there)) return false
    for (const db of all.devices) if (!isDeepStrictEqual(await deviceHistories(db), there)) return false
    return true
  }
  await until('all have the same', agree).catch(() => undefined)
  const there = await sameEverywhere(t, all)
  t.ok(isDone(there), 'the server has the expected state')
  return there
}
