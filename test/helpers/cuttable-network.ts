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
  /** As {@link withholdAnswers}, in both directions, for new connections as well: as if a cable were pulled. */
  cut(): void
  /** Ends the connections that were cut, and lets new ones through. */
  mend(): void
  /** From now on new connections lead to another server, as an address that a failover moves. */
  redirect(port: number): void
}

/** @param port the port of the server on 127.0.0.1 */
export async function cuttableNetwork(t: Pick<Test, 'teardown'>, port: number): Promise<CuttableNetwork> {
  const state = { answers: true, requests: true, port }
  const open = new Set<Socket>()
  const forward = (from: Socket, to: Socket, isAllowed: () => boolean) => {
    open.add(from)
    from.on('data', (bytes) => {
      if (isAllowed()) to.write(bytes)
    })
    from.on('error', () => to.destroy())
    from.on('close', () => {
      open.delete(from)
      to.destroy()
    })
  }
  const server = createServer((client) => {
    const upstream = connect(state.port, '127.0.0.1')
    forward(client, upstream, () => state.requests)
    forward(upstream, client, () => state.answers)
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
  }
}
