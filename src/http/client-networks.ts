/**
 * The networks that clients come from: an IPv4 address, or the /64 of an IPv6 address, which one household or one
 * rented machine has to itself. Each has its connections, its requests that wait, and a token bucket for requests
 * without an account.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { networkOf } from '../core/network.ts'

/** How many networks are remembered that have no connection here: clients of a proxy, and those that went a moment ago. */
const REMEMBERED = 10_000
/** A bucket holds the tokens of so many seconds, and lacks no more. */
const BURST_S = 2

/** A request that has not been handed on yet. */
export interface Waiting {
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/** What can stop reading a connection, and read on. */
export interface Gate {
  /** How many requests of the connection have no answer yet, those that wait among them. Idle when it is 0. */
  readonly requests: number
  /** Whether the connection may be paused at all: one that speaks HTTP/2 may not. */
  readonly canHold: boolean
  hold(): void
  release(): void
}

/** The requests of one connection, or of one client of a trusted proxy, in their order. */
export class Lane {
  readonly network: ClientNetwork
  /** null: a client of a proxy, whose connection carries others' requests, too. */
  readonly gate: Gate | null
  readonly waiting: Waiting[] = []
  /** Whether the last request that said who asks had an account. */
  isKnown = false
  /** How many were served in the turn of this number. */
  served = 0
  turn = 0

  constructor(network: ClientNetwork, gate: Gate | null) {
    this.network = network
    this.gate = gate
  }

  get canHold(): boolean {
    return this.gate?.canHold ?? false
  }
}

export class ClientNetwork {
  readonly name: string
  /** Of its connections. */
  readonly lanes = new Set<Lane>()
  /** For its requests that come through a trusted proxy. */
  readonly proxied = new Lane(this, null)
  /** How many of its requests wait. */
  waiting = 0
  /** How many were served in the turn of this number. */
  served = 0
  turn = 0
  /** Whether connections without an account, or all, are not read at present. */
  held: 'none' | 'strangers' | 'all' = 'none'
  #tokens = Infinity
  #filledAt = 0

  constructor(name: string) {
    this.name = name
  }

  /**
   * Takes a token for a request without an account.
   * @param rate tokens that come back in a second; 0: nothing is counted
   * @param now in milliseconds
   * @returns false when there is none
   */
  take(rate: number, now: number): boolean {
    if (this.tokens(rate, now) < 1) return false
    this.#tokens -= 1
    return true
  }

  /** Takes a token even where there is none: for what cannot wait. */
  charge(): void {
    this.#tokens -= 1
  }

  /** Gives one back, of a request that turned out to have an account. */
  refund(): void {
    this.#tokens += 1
  }

  /** @returns how many tokens there are; below 0 when more were charged than there were */
  tokens(rate: number, now: number): number {
    if (rate === 0) return Infinity
    const back = ((now - this.#filledAt) * rate) / 1000
    // A debt has an end, too: whoever shares the address pays for it as well.
    this.#tokens = Math.min(rate * BURST_S, Math.max(-rate * BURST_S, this.#tokens) + back)
    this.#filledAt = now
    return this.#tokens
  }

  get isIdle(): boolean {
    return this.lanes.size === 0 && this.waiting === 0
  }
}

export class ClientNetworks {
  readonly #byName = new Map<string, ClientNetwork>()

  /** @param address an IP address */
  of(address: string): ClientNetwork {
    const name = networkOf(address)
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    this.#makeRoom()
    const made = new ClientNetwork(name)
    this.#byName.set(name, made)
    return made
  }

  get size(): number {
    return this.#byName.size
  }

  /** Those that came first go first. One that is used has a connection or a request, and stays. */
  #makeRoom(): void {
    if (this.#byName.size < REMEMBERED) return
    for (const [name, network] of this.#byName) {
      if (!network.isIdle) continue
      this.#byName.delete(name)
      return
    }
  }
}
