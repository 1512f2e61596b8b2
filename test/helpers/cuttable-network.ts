/** A network between a client and a server that a test cuts, in either direction, at any moment. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

export interface CuttableNetwork {
  readonly port: number
  /** Ends all connections; new ones are possible. */
  reset(): void
  /** From now on no byte reaches the client, and none is lost visibly: connections stay open. */
  withholdAnswers(): void
  /** Resolves when an answer that contains a text is withheld. */
  withheld(text: string): Promise<void>
  /** Sends the clients whose answers are withheld these bytes in their place, and ends their connections. */
  endWith(bytes: Uint8Array): void
  /** The connections of now stay open, and nothing passes them any more. New ones work. */
  forget(): void
  /** As {@link withholdAnswers}, in both directions, for new connections as well: as if a cable were pulled. */
  cut(): void
  /** Ends the connections that were cut, and lets new ones through. */
  mend(): void
  /** From now on new connections lead to another server, as an address that a failover moves. */
  redirect(port: number): void
  /** The next request that contains a text stays in the network, and its connection ends for the client. */
  hold(text: string): HeldRequest
}

export interface HeldRequest {
  /** Resolves when the request is there. */
  readonly isHeld: Promise<void>
  /** Lets it through. Resolves when the server has handled it and has ended the connection. */
  release(): Promise<void>
}

/** @param port the port of the server on 127.0.0.1 */
export async function cuttableNetwork(t: Pick<Test, 'teardown'>, port: number): Promise<CuttableNetwork> {
  const state = { answers: true, requests: true, port }
  const open = new Set<Socket>()
  const clients = new Set<Socket>()
  const forgotten = new WeakSet<Socket>()
  let awaiting: { readonly text: string; withheld(): void } | null = null
  let holding: { readonly text: string; held(bytes: Buffer, upstream: Socket): void } | null = null
  const forward = (from: Socket, to: Socket, isAllowed: (bytes: Buffer) => boolean) => {
    open.add(from)
    from.on('data', (bytes) => {
      if (isAllowed(bytes)) to.write(bytes)
    })
    from.on('error', () => to.destroy())
    from.on('close', () => {
      open.delete(from)
      to.destroy()
    })
  }
  const server = createServer((client) => {
    const upstream = connect(state.port, '127.0.0.1')
    const isHeld = (bytes: Buffer) => {
      if (holding === null || !bytes.includes(holding.text)) return false
      upstream.removeAllListeners().on('error', () => undefined)
      client.removeAllListeners().destroy()
      holding.held(bytes, upstream)
      holding = null
      return true
    }
    clients.add(client)
    client.on('close', () => clients.delete(client))
    forward(client, upstream, (bytes) => !forgotten.has(client) && state.requests && !isHeld(bytes))
    forward(upstream, client, (bytes) => {
      if (!state.answers && awaiting !== null && bytes.includes(awaiting.text)) awaiting.withheld()
      return !forgotten.has(client) && state.answers
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const reset = () => {
    for (const socket of open) socket.destroy()
  }
  t.teardown(() => {
    server.close()
    reset()
  })
  return {
    port: (server.address() as AddressInfo).port,
    reset,
    withholdAnswers: () => {
      state.answers = false
    },
    withheld: (text) =>
      new Promise((resolve) => {
        awaiting = { text, withheld: resolve }
      }),
    forget: () => {
      for (const client of clients) forgotten.add(client)
    },
    endWith: (bytes) => {
      for (const client of clients) client.end(bytes)
      state.answers = true
    },
    cut: () => {
      Object.assign(state, { answers: false, requests: false })
    },
    mend: () => {
      Object.assign(state, { answers: true, requests: true })
      reset()
    },
    redirect: (other) => {
      state.port = other
    },
    hold: (text) => {
      const held = Promise.withResolvers<{ readonly bytes: Buffer; readonly upstream: Socket }>()
      holding = { text, held: (bytes, upstream) => held.resolve({ bytes, upstream }) }
      return {
        isHeld: held.promise.then(() => undefined),
        release: async () => {
          const { bytes, upstream } = await held.promise
          upstream.resume().end(bytes)
          await once(upstream, 'close')
        },
      }
    },
  }
}
