/** A database that moves by hand from an old server to a new one, and devices that count what they send and receive. */
import PouchDB from 'pouchdb'
import type { Test } from 'tap'
import type { RememberedToken } from '../../src/storage/token-position.ts'
import { ADMIN } from '../documents/helpers.ts'
import { serve as serveDatabases } from '../threads/served.ts'
import { type Device, forgiveInfo } from './devices.ts'
import { call, type ServedServer } from './served.ts'

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
  server: ServedServer,
): Promise<void> {
  const old = { url }
  const asked = { source: `${url}/${name}`, target: name, create_target: true }
  t.match((await call(server, 'POST', '/_replicate', { body: asked })).json, {
    ok: true,
    history: [{ doc_write_failures: 0 }],
  })
  const copied = await rowsAfter(server, name, 0)
  const numbers = new Map(copied.map(({ id, seq }) => [id, Number.parseInt(String(seq), 10)]))
  await server.stop()
  const { databases } = await serveDatabases(t, { dataDir: server.dataDir })
  const database = databases.get(name)
  const tokens: RememberedToken[] = [{ token: '0', seq: 0 }]
  for (const id of checkpoints) {
    const { status, json } = await call(old, 'GET', `/${name}/${id}`)
    if (status !== 200) continue
    const { _rev, ...checkpoint } = json as { _rev: string; last_seq: string; history: Checkpoint['history'] }
    for (const token of tokensOf(checkpoint)) {
      const after = await rowsAfter(old, name, token)
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
): Promise<readonly Row[]> {
  const { json } = await call(server, 'GET', `/${name}/_changes?since=${since}`)
  return (json as { results: Row[] }).results
}
