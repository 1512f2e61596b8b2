/** Devices of one account that sync a database live, as PouchDB speaks. */
import { createHash } from 'node:crypto'
import { follow } from './listener.ts'
import type { Peer } from './peer.ts'

/** Devices of one account, which share a database. */
export const DEVICES = 4
/** Notes of one database that are edited. */
const NOTES = 50
/** The edits in a path of revisions that PouchDB sends, at most. */
const PATH_LENGTH = 20
const HEARTBEAT_MS = 30_000
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

/** A database with its devices. */
export class Vault {
  readonly #path: string
  readonly #devices: Device[]
  /** The ids of each note's revisions, newest first. */
  readonly #paths = new Map<string, { start: number; ids: string[] }>()
  /** Edits that have not arrived, by note. */
  readonly #edits = new Map<string, Edit[]>()

  /** @param address of the household's feeds, for a server that limits each address */
  constructor(path: string, address?: string) {
    this.#path = path
    this.#devices = Array.from({ length: DEVICES }, (_, n) => new Device(path, `device-${n}`, address))
  }

  /** Connects the devices, each from the last change that it has seen. */
  async open(peer: Peer): Promise<void> {
    await Promise.all(
      this.#devices.map((device) => device.open(peer, (id, rev) => this.#onRow(device, id, rev))),
    )
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
  readonly #path: string
  readonly #checkpoint: string
  readonly #address: string | undefined
  #connection: Peer | undefined
  #since = '0'
  #writing: Promise<void> = Promise.resolve()
  #checkpointRev: string | undefined
  #isClosed = false
  #close: () => void = () => {}

  constructor(path: string, name: string, address: string | undefined) {
    this.#path = path
    this.#checkpoint = `${path}/_local/${name}`
    this.#address = address
  }

  get #peer(): Peer {
    if (this.#connection === undefined) throw new Error('the device is not connected')
    return this.#connection
  }

  async open(peer: Peer, onRow: (id: string, rev: string) => void): Promise<void> {
    this.#connection = peer
    this.#isClosed = false
    if (this.#checkpointRev !== undefined) await peer.call('GET', this.#checkpoint, 200)
    this.#close = await follow(
      peer,
      `${this.#path}/_changes?since=${encodeURIComponent(this.#since)}&style=all_docs`,
      HEARTBEAT_MS,
      (line) => {
        const row = JSON.parse(line) as { id?: string; seq?: string; changes?: { rev: string }[] }
        const rev = row.changes?.[0]?.rev
        this.#since = row.seq ?? this.#since
        if (row.id !== undefined && rev !== undefined) onRow(row.id, rev)
      },
      this.#address,
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
    if (this.#isClosed) return
    this.#writing = this.#writing.then(async () => {
      const body = JSON.stringify({ last_seq: Date.now(), _rev: this.#checkpointRev })
      const answer = await this.#peer.call('PUT', this.#checkpoint, 201, body)
      this.#checkpointRev = (JSON.parse(answer.toString()) as { rev: string }).rev
    })
  }

  /** Disconnects; writing a checkpoint may fail then. */
  close(): void {
    this.#isClosed = true
    this.#writing = this.#writing.catch(() => undefined)
    this.#close()
  }
}
