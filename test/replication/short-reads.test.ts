/** Answers of other servers are read a little at a time, over every kind of connection. */
import { connect, createServer, Socket } from 'node:net'
import t, { type Test } from 'tap'
import { RemotePools } from '../../src/replication/remote/remote-pools.ts'
import { request } from '../../src/replication/remote/undici-parts.ts'

const OPTIONS = { mayBePrivate: true, proxy: undefined, timeoutMs: 30_000, verifiesCertificates: true }
const MOST = 4096
const BODY = 'x'.repeat(1_000_000)

/** @returns the port of a server of TCP that answers a request's first bytes */
async function listening(t: Test, answer: (socket: Socket, asked: string) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('data', (asked) => answer(socket, String(asked)))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** A tunnel to wherever it is asked for. */
function tunnel(socket: Socket, asked: string): void {
  const [, port] = /^CONNECT [^:]+:(\d+)/.exec(asked) ?? []
  const through = connect(Number(port), '127.0.0.1', () => {
    socket.write('HTTP/1.1 200 OK\r\n\r\n')
    through.pipe(socket).pipe(through)
  })
  through.on('error', () => socket.destroy())
}

/** Notes the lengths of what this process's sockets read, in bytes. */
function watchReads(t: Test): number[] {
  const lengths: number[] = []
  const { read } = Socket.prototype
  Socket.prototype.read = function (this: Socket, size) {
    const chunk = read.call(this, size)
    if (chunk !== null) lengths.push(chunk.length)
    return chunk
  }
  t.teardown(() => {
    Socket.prototype.read = read
  })
  return lengths
}

for (const way of ['a pool', 'a pool of feeds', 'a proxy'] as const) {
  t.test(way, async (t) => {
    const proxy = way === 'a proxy' ? `http://127.0.0.1:${await listening(t, tunnel)}` : undefined
    const pools = new RemotePools()
    t.teardown(() => pools.close())
    const ask = async (head: string) => {
      const port = await listening(t, (socket) => socket.end(`HTTP/1.1 200 OK\r\n${head}\r\n${BODY}`))
      const origin = `http://127.0.0.1:${port}`
      const pool = pools.pool(origin, { ...OPTIONS, proxy }, way === 'a pool of feeds')
      const { body } = await request.call(pool, { origin, path: '/', method: 'GET' })
      return body.text()
    }
    const lengths = watchReads(t)
    t.equal(await ask(`content-length: ${BODY.length}\r\n`), BODY, 'a body is whole')
    t.ok(lengths.length > 0 && lengths.every((length) => length <= MOST), `reads of up to ${MOST} bytes`)
    lengths.length = 0
    await t.rejects(ask('a:b\r\n'.repeat(100_000)), { code: 'UND_ERR_HEADERS_OVERFLOW' })
    const read = lengths.reduce((sum, length) => sum + length, 0)
    t.ok(read < 64 * 1024, `${read} bytes of 100,000 headers were read`)
  })
}
