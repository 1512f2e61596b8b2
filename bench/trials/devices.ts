import { createHash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { follow } from '../listener.ts'
import { inFlight, medianOf, megabytes, percentileOf, withCpu } from '../load.ts'
import type { Peer } from '../peer.ts'
import { mulberry32 } from '../seed.ts'
import type { Bench, Figure, Trial } from '../trial.ts'

/** Devices of one account, which share a database. */
const DEVICES = 4
/** Notes of one database that are edited. */
const NOTES = 50
/** The edits in a path of revisions that PouchDB sends, at most. */
const PATH_LENGTH = 20
const HEARTBEAT_MS = 30_000
const OPENING = 50
const REST_MS = 2_000
const TEXT = 'x'.repeat(900)

/** An edit of a note on its way to the other devices. */
interface Edit {
  /** The generation of its revision. */
  readonly generation: number
  /** Devices that have neither its body nor that of a later edit. */
  readonly waiting: Set<Device>
  arrive(): void
  fail(error: unknown): void
}

export const devices: Trial = {
  name: 'devices',
  about: `${DEVICES} devices per database with live feeds; one saves, the others fetch the body, all write checkpoints`,
  isAlone: true,
  async run(bench) {
    const { peer, scale } = bench
    const vaults = await openVaults(bench)
    try {
      await delay(REST_MS)
      const idle = await peer.memory()
      const edits = scale.editsPerSecond * scale.editSeconds
      const { result: times, cpu } = await withCpu(peer, edits, 'edit', () =>
        editAtRate(vaults, edits, scale.editsPerSecond),
      )
      const after = await peer.memory()
      return [
        { name: 'to three bodies, median', unit: 'ms', value: medianOf(times) },
        { name: 'to three bodies, 99% within', unit: 'ms', value: percentileOf(times, 0.99) },
        ...cpu,
        ...(idle === null ? [] : [{ name: 'with idle feeds', unit: 'MB', value: megabytes(idle) }]),
        ...(after === null ? [] : [{ name: 'after the edits', unit: 'MB', value: megabytes(after) }]),
      ]
    } finally {
      for (const vault of vaults) vault.close()
    }
  },
}

/** The same at rising rates, for a plot (`--plot`). */
export const curve: Trial = {
  name: 'curve',
  about: 'the devices at rising rates of edits',
  isAlone: true,
  async run(bench) {
    const { peer, scale } = bench
    const vaults = await openVaults(bench)
    try {
      // The first edits warm up the code.
      await editAtRate(vaults, scale.editsPerSecond * 5, scale.editsPerSecond)
      const figures: Figure[] = []
      for (const at of scale.editRates) {
        const edits = at * scale.editSeconds
        const { result: times, cpu } = await withCpu(peer, edits, 'edit', () => editAtRate(vaults, edits, at))
        figures.push(
          { name: 'median', unit: 'ms', value: medianOf(times), at },
          { name: '99% within', unit: 'ms', value: percentileOf(times, 0.99), at },
          ...cpu.map((figure) => ({ ...figure, at })),
        )
        await delay(REST_MS)
      }
      return figures
    } finally {
      for (const vault of vaults) vault.close()
    }
  },
}

async function openVaults({ peer, scale, emptyDatabase }: Bench): Promise<Vault[]> {
  const vaults: Vault[] = []
  const jobs = Array.from({ length: scale.devices / DEVICES }, () => async () => {
    const vault = new Vault(peer, await emptyDatabase())
    vaults.push(vault)
    await vault.open()
  })
  await inFlight(OPENING, jobs)
  return vaults
}

/**
 * Saves edits at a fixed rate, whether earlier ones have arrived or not. A few databases get most of them (Zipf's law).
 * @returns the time of each edit from its save to the third body, in milliseconds
 * @throws when a call fails
 */
async function editAtRate(vaults: readonly Vault[], edits: number, perSecond: number): Promise<number[]> {
  const random = mulberry32(1)
  const arrivals: Promise<number>[] = []
  const since = performance.now()
  while (arrivals.length < edits) {
    const due = Math.min(edits, Math.floor(((performance.now() - since) / 1000) * perSecond))
    while (arrivals.length < due) {
      const at = Math.min(vaults.length - 1, Math.floor(vaults.length ** random() - 1))
      arrivals.push((vaults[at] as Vault).edit(arrivals.length))
    }
    await delay(2)
  }
  return Promise.all(arrivals)
}

/** A database with its devices. */
class Vault {
  readonly #peer: Peer
  readonly #path: string
  readonly #devices: Device[] = []
  /** The ids of each note's revisions, newest first. */
  readonly #paths = new Map<string, { start: number; ids: string[] }>()
  /** Edits that have not arrived, by note. */
  readonly #edits = new Map<string, Edit[]>()

  constructor(peer: Peer, path: string) {
    this.#peer = peer
    this.#path = path
  }

  async open(): Promise<void> {
    for (let n = 0; n < DEVICES; n++) {
      const device = new Device(this.#peer, this.#path, `device-${n}`)
      await device.open((id, rev) => this.#onRow(device, id, rev))
      this.#devices.push(device)
    }
  }

  /** Saves an edit on one device. Resolves when the others have its body, with the milliseconds that this took. */
  edit(serial: number): Promise<number> {
    const from = this.#devices[serial % DEVICES] as Device
    const id = `note-${serial % NOTES}`
    const last = this.#paths.get(id) ?? { start: 0, ids: [] }
    const hash = createHash('md5').update(`${this.#path} ${serial}`).digest('hex')
    const path = { start: last.start + 1, ids: [hash, ...last.ids].slice(0, PATH_LENGTH) }
    this.#paths.set(id, path)
    const doc = { _id: id, _rev: `${path.start}-${hash}`, _revisions: path, serial, text: TEXT }
    return new Promise((resolve, reject) => {
      const savedAt = performance.now()
      const arrive = () => resolve(performance.now() - savedAt)
      const waiting = new Set(this.#devices.filter((device) => device !== from))
      const edit = { generation: path.start, waiting, arrive, fail: reject }
      this.#edits.set(id, [...(this.#edits.get(id) ?? []), edit])
      from.save(doc).catch(reject)
    })
  }

  /** A feed may skip an edit that was followed by another. */
  #onRow(device: Device, id: string, rev: string): void {
    const generation = Number.parseInt(rev, 10)
    const arrived = (this.#edits.get(id) ?? []).filter((edit) => edit.generation <= generation)
    const isOwn = !arrived.some((edit) => edit.generation === generation && edit.waiting.has(device))
    const fetched = isOwn ? Promise.resolve() : device.fetch(id, rev)
    fetched.then(
      () => {
        for (const edit of arrived) this.#arrive(id, edit, device)
      },
      (error) => {
        for (const edit of arrived) edit.fail(error)
      },
    )
  }

  #arrive(id: string, edit: Edit, device: Device): void {
    if (!edit.waiting.delete(device) || edit.waiting.size > 0) return
    const left = (this.#edits.get(id) ?? []).filter((each) => each !== edit)
    this.#edits.set(id, left)
    edit.arrive()
  }

  close(): void {
    for (const device of this.#devices) device.close()
  }
}

/** A device with a live sync, as PouchDB speaks. */
class Device {
  readonly #peer: Peer
  readonly #path: string
  readonly #checkpoint: string
  #writing: Promise<void> = Promise.resolve()
  #checkpointRev: string | undefined
  #close: () => void = () => {}

  constructor(peer: Peer, path: string, name: string) {
    this.#peer = peer
    this.#path = path
    this.#checkpoint = `${path}/_local/${name}`
  }

  async open(onRow: (id: string, rev: string) => void): Promise<void> {
    this.#close = await follow(
      this.#peer,
      `${this.#path}/_changes?since=0&style=all_docs`,
      HEARTBEAT_MS,
      (line) => {
        const row = JSON.parse(line) as { id?: string; changes?: { rev: string }[] }
        const rev = row.changes?.[0]?.rev
        if (row.id !== undefined && rev !== undefined) onRow(row.id, rev)
      },
    )
  }

  async save(doc: {
    readonly _id: string
    readonly _rev: string
    readonly [name: string]: unknown
  }): Promise<void> {
    const { _id, _rev } = doc
    await this.#peer.call('POST', `${this.#path}/_revs_diff`, 200, JSON.stringify({ [_id]: [_rev] }))
    const body = JSON.stringify({ new_edits: false, docs: [doc] })
    const answer = (await this.#peer.call('POST', `${this.#path}/_bulk_docs`, 201, body)).toString().trim()
    if (answer !== '[]') throw new Error(`${this.#peer.name} refused an edit: ${answer.slice(0, 300)}`)
    this.#writeCheckpoint()
  }

  async fetch(id: string, rev: string): Promise<void> {
    const body = JSON.stringify({ docs: [{ id, rev }] })
    const answer = await this.#peer.call('POST', `${this.#path}/_bulk_get?revs=true&latest=true`, 200, body)
    if (!answer.includes('"text"')) throw new Error(`${this.#peer.name} has no body of ${id} ${rev}`)
    this.#writeCheckpoint()
  }

  /** One at a time; it does not delay the edits. */
  #writeCheckpoint(): void {
    this.#writing = this.#writing.then(async () => {
      const body = JSON.stringify({ last_seq: Date.now(), _rev: this.#checkpointRev })
      const answer = await this.#peer.call('PUT', this.#checkpoint, 201, body)
      this.#checkpointRev = (JSON.parse(answer.toString()) as { rev: string }).rev
    })
  }

  close(): void {
    this.#writing.catch(() => undefined)
    this.#close()
  }
}
