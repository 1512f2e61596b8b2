/** A database that moves by hand from an old server to a new one, and devices that count what they send and receive. */

import PouchDB from 'pouchdb'
import type { Test } from 'tap'
import type { RememberedToken } from '../../src/storage/token-position.ts'
import { ADMIN } from '../documents/helpers.ts'
import type { TestServer } from '../helpers/server.ts'
import { serve as serveDatabases } from '../threads/served.ts'
import { call } from './call.ts'
import { type Device, device, forgiveInfo } from './devices.ts'
import { sameEverywhere } from './histories.ts'

/** The requests of a device, and the bytes of their bodies and answers. */
export interface Traffic {
  requests: number
  bytes: number
  /** The ids of the checkpoints that it has asked for, as in a path. */
  readonly checkpoints: Set<string>
}

/** @param address of the database */
export function countedRemote(address: string): { readonly db: Device; readonly traffic: Traffic } {
  const traffic: Traffic = { requests: 0, bytes: 0, checkpoints: new Set() }
  const fetch = async (url: string, init?: PouchDB.Options & { body?: string }): Promise<Response> => {
    const answer = await PouchDB.fetch(url, init)
    const bytes = await answer.arrayBuffer()
    traffic.requests += 1
    traffic.bytes += (init?.body?.length ?? 0) + bytes.byteLength
    const [local] = /_local\/[^?]+/.exec(url) ?? []
    if (local !== undefined) traffic.checkpoints.add(local)
    const { status, headers } = answer
    return new Response(bytes, { status, headers: [...headers] })
  }
  const db = new PouchDB(address, { fetch })
  forgiveInfo(db)
  return { db, traffic }
}

export interface OldDatabase {
  /** Of the old server, without a slash at the end. */
  readonly url: string
  readonly name: string
  /** The ids of the devices' checkpoints. */
  readonly checkpoints: readonly string[]
}

interface Row {
  readonly id: string
  readonly seq: string | number
}

/**
 * Copies the database with the checkpoints, remembers their tokens, and adopts the uuid.
 * @param server the new one, without databases; it is stopped and started again in between
 */
export async function moveByHand(
  t: Test,
  { url, name, checkpoints }: OldDatabase,
  server: TestServer,
): Promise<void> {
  const old = { url }
  // One batch after the other, so that the copy's order is that of the old feed.
  const asked = { source: `${url}/${name}`, target: name, create_target: true, worker_processes: 1 }
  t.match((await call(server, 'POST', '/_replicate', { body: asked })).json, {
    ok: true,
    history: [{ doc_write_failures: 0 }],
  })
  const copied = (await rowsAfter(server, name, 0)) ?? []
  const numbers = new Map(copied.map(({ id, seq }) => [id, Number.parseInt(String(seq), 10)]))
  await server.stop()
  const { databases } = await serveDatabases(t, { dataDir: server.dataDir })
  const database = await databases.get(name)
  const tokens: RememberedToken[] = [{ token: '0', seq: 0 }]
  for (const id of checkpoints) {
    const { status, json } = await call(old, 'GET', `/${name}/${id}`)
    if (status !== 200) continue
    const { _rev, ...checkpoint } = json as { _rev: string; last_seq: string; history: Checkpoint['history'] }
    for (const token of tokensOf(checkpoint)) {
      const after = await rowsAfter(old, name, token)
      // CouchDB refuses the numbers of the devices' own feeds.
      if (after === null) continue
      const first = Math.min(...after.map((row) => numbers.get(row.id) as number), numbers.size + 1)
      tokens.push({ token, seq: first - 1 })
    }
    const bytes = Buffer.from(JSON.stringify(checkpoint))
    await database.put(ADMIN, decodeURIComponent(id), { bytes }, {})
  }
  await database.rememberTokens(tokens)
  await databases.adoptUuid(((await call(old, 'GET', '/')).json as { uuid: string }).uuid)
  await databases.close()
  await server.start()
}

/** The most that the first sync after the move may take of a full one, in bytes. */
const SHARE = 0.02

/**
 * Two devices sync with an old server, which moves, and go on with the new one.
 * @param url of the old server, without a slash at the end
 */
export async function devicesGoOn(
  t: Test,
  url: string,
  server: TestServer,
  notes: number,
): Promise<{ readonly first: Traffic; readonly full: Traffic }> {
  const [phone, desk] = [await device(t), await device(t)]
  await phone.bulkDocs(
    Array.from({ length: notes }, (_, n) => ({ _id: `note-${n}`, text: 'word '.repeat(300) })),
  )
  const before = countedRemote(`${url}/notes`)
  await phone.sync(before.db)
  // Its pull has ended before its push.
  await phone.sync(before.db)
  const full = countedRemote(`${url}/notes`)
  await desk.sync(full.db)
  await desk.put({ _id: 'new', text: 'from the desk' })
  await desk.sync(full.db)
  const checkpoints = [...before.traffic.checkpoints, ...full.traffic.checkpoints]
  await moveByHand(t, { url, name: 'notes', checkpoints }, server)
  await phone.put({ _id: 'offline', text: 'from the phone' })

  const after = countedRemote(`${server.url}/notes`)
  const { pull, push } = await phone.sync(after.db)
  t.match(
    [pull, push],
    [
      { docs_read: 1, errors: [] },
      { docs_read: 1, errors: [] },
    ],
  )
  const [first, all] = [after.traffic.bytes, full.traffic.bytes]
  t.ok(first < SHARE * all, `${first} of ${all} bytes`)
  t.match(await desk.sync(countedRemote(`${server.url}/notes`).db), { pull: { docs_read: 1 } })
  await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
  t.match((await call(server, 'GET', '/notes')).json, { doc_count: notes + 2 })
  return { first: after.traffic, full: full.traffic }
}

interface Checkpoint {
  readonly last_seq: string | number
  readonly history: readonly { readonly last_seq: string | number }[] | undefined
}

function tokensOf({ last_seq, history = [] }: Checkpoint): Set<string> {
  return new Set([last_seq, ...history.map((session) => session.last_seq)].map(String))
}

async function rowsAfter(
  server: { readonly url: string },
  name: string,
  since: string | number,
): Promise<readonly Row[] | null> {
  const { status, json } = await call(server, 'GET', `/${name}/_changes?since=${since}`)
  return status === 200 ? (json as { results: Row[] }).results : null
}
