/** Connections to other servers, which all replications share, and the turns of the feeds that wait on them. */
import type { TLSSocket } from 'node:tls'
import { LRUCache } from 'lru-cache'
import type { Client, buildConnector as Connectors, Dispatcher } from 'undici'
import { atMost } from '../../core/cache.ts'
import { type FeedTurn, FeedTurns } from './feed-turns.ts'
import { publicLookup } from './remote-addresses.ts'
import { pausing, repeating } from './remote-pace.ts'
import { withShortReads } from './short-reads.ts'
import { buildConnector, onConnected, Pool, ProxyAgent } from './undici-parts.ts'

export interface RemoteOptions {
  /** Whether private addresses are allowed, which they are for server admins. */
  readonly mayBePrivate: boolean
  /** The URL of an HTTP proxy. */
  readonly proxy: string | undefined
  /** How long an answer may be silent, in ms. */
  readonly timeoutMs: number
  /** Verify the certificates of servers. */
  readonly verifiesCertificates: boolean
}

/** Of CouchDB's `http_connections`. */
const DEFAULT_CONNECTIONS = 20
/** The part of a remote's connections that feeds may hold while they wait. */
const FEED_SHARE = 0.4
/** Feeds that wait at once over one HTTP/2 connection. Servers allow about 100 streams. */
const STREAMS = 64
/** Remotes whose protocol is remembered, and half of the pools that are kept. */
const MAX_REMOTES = 1000

/** The connection pools of one server. */
export class RemotePools {
  readonly #maxConnections: () => number
  /**
   * By origin, options and kind. undici's own `Agent` counts the connections of a pool that it closes as those of the pool
   * after it, and from then on opens a connection for each request.
   */
  readonly #pools = new LRUCache<string, Dispatcher>({
    ...atMost(2 * MAX_REMOTES),
    // Its requests go on to their ends.
    dispose: (pool) => void pool.close().catch(() => {}),
  })
  readonly #interceptors = [repeating(), pausing()]
  /** Of the remotes with feeds that wait, by options and origin. */
  readonly #turns = new Map<string, FeedTurns>()
  /** Whether a remote speaks HTTP/2, by options and origin; unknown before its first connection. */
  readonly #hasStreams = new LRUCache<string, boolean>(atMost(MAX_REMOTES))

  /** @param maxConnections to one remote */
  constructor(maxConnections = () => DEFAULT_CONNECTIONS) {
    this.#maxConnections = maxConnections
  }

  /**
   * Waits until a feed may wait at a remote. Feeds share one connection over HTTP/2; otherwise they hold some of the
   * connections, and take turns.
   * @throws what `signal` is aborted with
   */
  async feedTurn(url: URL, options: RemoteOptions, signal: AbortSignal): Promise<FeedTurn> {
    const key = remoteKey(url.origin, options)
    const turns = this.#turns.get(key) ?? new FeedTurns(this.#feedPlaces(key, url, options))
    this.#turns.set(key, turns)
    const leave = () => {
      if (turns.isIdle && this.#turns.get(key) === turns) this.#turns.delete(key)
    }
    const turn = await turns.take(signal).catch((error: unknown) => {
      leave()
      throw error
    })
    return {
      ...turn,
      end: () => {
        turn.end()
        leave()
      },
    }
  }

  #feedPlaces(key: string, { protocol }: URL, { proxy }: RemoteOptions): number {
    const hasStreams = protocol === 'https:' && proxy === undefined ? this.#hasStreams.get(key) : false
    if (hasStreams === undefined) return 1
    return hasStreams ? STREAMS : this.#feedConnections
  }

  get #feedConnections(): number {
    return Math.max(1, Math.floor(this.#maxConnections() * FEED_SHARE))
  }

  /**
   * Feeds have a pool of their own, since only they share connections: undici sends no body that is a stream over an HTTP/2
   * connection on which a feed waits.
   */
  pool(origin: string, options: RemoteOptions, isFeed: boolean): Dispatcher {
    const feedConnections = this.#feedConnections
    const connections = isFeed ? feedConnections : Math.max(1, this.#maxConnections() - feedConnections)
    const remote = remoteKey(origin, options)
    const key = JSON.stringify([remote, isFeed, connections])
    const known = this.#pools.get(key)
    if (known !== undefined) return known
    const { mayBePrivate, proxy, timeoutMs } = options
    const tls = { rejectUnauthorized: options.verifiesCertificates }
    const lookup = mayBePrivate ? {} : { lookup: publicLookup }
    const connect = withShortReads(buildConnector({ timeout: timeoutMs, ...tls, ...lookup, allowH2: isFeed }))
    const pool =
      proxy !== undefined
        ? new ProxyAgent({ uri: proxy, requestTls: tls, connections, factory: tunnelled })
        : new Pool(origin, {
            connect: isFeed ? this.#feedConnector(remote, connect) : connect,
            allowH2: isFeed,
            connections,
            keepAliveTimeout: 10_000,
          })
    // undici has one request on a connection at a time until it is told otherwise, over HTTP/2, too.
    if (isFeed) {
      pool.on('connect', (_origin, targets) => {
        if (this.#hasStreams.get(remote)) (targets.at(-1) as Client).pipelining = STREAMS
      })
    }
    const composed = pool.compose(this.#interceptors)
    this.#pools.set(key, composed)
    return composed
  }

  /** Notes whether a remote speaks HTTP/2. */
  #feedConnector(remote: string, connect: Connectors.connector): Connectors.connector {
    return onConnected(connect, (socket, { protocol }) => {
      if (protocol !== 'https:') return
      const hasStreams = (socket as TLSSocket).alpnProtocol === 'h2'
      this.#hasStreams.set(remote, hasStreams)
      this.#turns.get(remote)?.setPlaces(hasStreams ? STREAMS : this.#feedConnections)
    })
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()))
    this.#pools.clear()
  }
}

/** The pool of connections to an origin through a proxy. @param options with the connector that makes the tunnel */
function tunnelled(origin: string, options: { connect: Connectors.connector }): Dispatcher {
  return new Pool(origin, { ...options, connect: withShortReads(options.connect) })
}

/** Remotes are told apart by their origin, and by what makes connections to it different. */
function remoteKey(origin: string, { mayBePrivate, proxy, verifiesCertificates }: RemoteOptions): string {
  return JSON.stringify([origin, mayBePrivate, proxy, verifiesCertificates])
}
