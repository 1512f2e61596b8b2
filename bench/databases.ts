/** A peer's databases for one run of the bench. */
import { randomUUID } from 'node:crypto'
import { inFlight } from './load.ts'
import type { Peer } from './peer.ts'
import { makeNotes } from './seed.ts'
import type { Bench, Scale, Seeded } from './trial.ts'
import { pushNotes } from './trials/push.ts'

const IN_FLIGHT = 8

export class Databases implements Bench {
  readonly peer: Peer
  readonly scale: Scale
  readonly #made: string[] = []
  #seeded: Promise<Seeded> | undefined

  constructor(peer: Peer, scale: Scale) {
    this.peer = peer
    this.scale = scale
  }

  readonly emptyDatabase = async (): Promise<string> => {
    const path = `/bench-${randomUUID()}`
    await this.peer.call('PUT', path, 201)
    this.#made.push(path)
    return path
  }

  readonly seeded = (): Promise<Seeded> => {
    this.#seeded ??= this.#seed()
    return this.#seeded
  }

  async #seed(): Promise<Seeded> {
    const [path, notes] = [await this.emptyDatabase(), makeNotes(this.scale.notes)]
    await pushNotes(this.peer, path, notes)
    return { path, notes }
  }

  async clear(): Promise<void> {
    const paths = this.#made.splice(0)
    await inFlight(
      IN_FLIGHT,
      paths.map((path) => () => this.peer.call('DELETE', path, 200)),
    )
  }
}
