/** An address that leads to one server and later to another, as a name or a virtual address does. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

export interface SwitchableAddress {
  /** Without a slash at the end. */
  readonly url: string
  /** Connections are cut, and new ones lead to this server; null: to nowhere. */
  leadTo(url: string | null): void
}

/** @param url the server that it leads to at first */
export async function switchableAddress(t: Pick<Test, 'teardown'>, url: string): Promise<SwitchableAddress> {
  let target: string | null = url
  const open = new Set<Socket>()
  const cut = () => {
    for (const socket of open) socket.destroy()
  }
  const server = createServer((socket) => {
    if (target === null) {
      socket.destroy()
      return
    }
    const { hostname, port } = new URL(target)
    const other = connect(Number(port), hostname)
    for (const [one, two] of [
      [socket, other],
      [other, socket],
    ] as const) {
      open.add(one)
      one.on('error', () => two.destroy())
      one.on('close', () => {
        open.delete(one)
        two.destroy()
      })
      one.pipe(two)
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    cut()
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    leadTo: (next) => {
      target = next
      cut()
    },
  }
}
