import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import { reachServer } from '../../src/control/control-socket.ts'
import { startOn } from '../own-server.ts'
import { makeNotes } from '../seed.ts'
import type { Figure, Trial } from '../trial.ts'

/** Notes that one of the devices has not seen before the move. */
const MISSED = 20
/** Documents that a device sends and compares at once. */
const BATCH = 500

export const move: Trial = {
  name: 'move',
  about:
    'settee move of notes that PouchDB has written, and what devices transfer at their first sync after it',
  isAlone: true,
  async run({ peer, scale, emptyDatabase }) {
    PouchDB.plugin(memoryAdapter)
    const path = await emptyDatabase()
    const old = new PouchDB(`${peer.address}${path}`)
    const [inStep, behind, fresh] = [newDevice(), newDevice(), newDevice()]
    const notes = makeNotes(scale.pulled).map(({ _rev, _revisions, ...note }) => note)
    await inStep.bulkDocs(notes)
    const all = { batch_size: BATCH }
    await inStep.sync(old, all)
    // A device offers what it has pulled once more at its second sync.
    for (const each of [behind, behind, inStep]) await each.sync(old, all)
    await inStep.bulkDocs(notes.slice(0, MISSED).map((note) => ({ ...note, _id: `new ${note._id}` })))
    await inStep.sync(old, all)
    const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
    const settee = await startOn(folder)
    try {
      const seconds = await moved(`${peer.address}/`, path.slice(1), folder)
      const address = `${settee.peer.address}${path}`
      const full = await trafficOf(address, (remote) => fresh.replicate.from(remote))
      return [
        { name: 'move', unit: 'doc/s', value: notes.length / seconds },
        ...figures('full resync', full, full.bytes),
        ...figures('device in step', await trafficOf(address, (remote) => inStep.sync(remote)), full.bytes),
        ...figures(
          `device ${MISSED} behind`,
          await trafficOf(address, (remote) => behind.sync(remote)),
          full.bytes,
        ),
      ]
    } finally {
      await settee.end('SIGTERM')
      await rm(folder, { recursive: true, force: true })
      await Promise.all([inStep, behind, fresh].map((device) => device.destroy()))
    }
  },
}

function newDevice(): PouchDB.Database {
  const device = new PouchDB(`bench-${randomUUID()}`, { adapter: 'memory' })
  device.setMaxListeners(50)
  return device
}

/** @returns seconds @throws when anything is missing */
async function moved(url: string, database: string, folder: string): Promise<number> {
  const controls = await reachServer(folder)
  if (controls === null) throw new Error('settee has no control socket')
  const since = performance.now()
  const outcome = await controls.move({ url, databases: [database], keepsUuid: false, isMerged: false })
  const seconds = (performance.now() - since) / 1000
  if (outcome.databases[0]?.isComplete !== true) throw new Error(JSON.stringify(outcome))
  return seconds
}

interface Traffic {
  readonly requests: number
  /** Of bodies and answers, inflated. */
  readonly bytes: number
}

async function trafficOf(
  address: string,
  sync: (remote: PouchDB.Database) => Promise<unknown>,
): Promise<Traffic> {
  let [requests, bytes] = [0, 0]
  const fetch = async (url: string, init?: PouchDB.Options & { body?: string }) => {
    const answer = await PouchDB.fetch(url, init)
    const body = await answer.arrayBuffer()
    requests += 1
    bytes += (init?.body?.length ?? 0) + body.byteLength
    return new Response(body, { status: answer.status, headers: [...answer.headers] })
  }
  await sync(new PouchDB(address, { fetch }))
  return { requests, bytes }
}

function figures(name: string, { requests, bytes }: Traffic, full: number): Figure[] {
  return [
    { name, unit: 'requests', value: requests },
    { name, unit: 'kB', value: bytes / 1000 },
    { name, unit: '% of a full resync', value: (100 * bytes) / full },
  ]
}
