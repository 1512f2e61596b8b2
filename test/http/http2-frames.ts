/** Frames of HTTP/2 written by hand (RFC 9113 4.1, 6; RFC 7541 6.2.2), for what Node's client would never send. */
import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
const TYPES = { data: 0, headers: 1, reset: 3, settings: 4 } as const
const END_HEADERS = 4

/** @param stream odd; 0 for the connection */
export function frame(type: keyof typeof TYPES, stream: number, payload: Buffer, flags = 0): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = TYPES[type]
  head[4] = flags
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** The head of a request with a body to come; each header by its letters, in no table. */
export function requestHead(stream: number, headers: Readonly<Record<string, string>>): Buffer {
  const fields = Object.entries(headers).map(([name, value]) =>
    Buffer.concat([Buffer.from([0]), text(name), text(value)]),
  )
  return frame('headers', stream, Buffer.concat(fields), END_HEADERS)
}

/** Of fewer than 127 bytes. */
function text(value: string): Buffer {
  return Buffer.concat([Buffer.from([value.length]), Buffer.from(value)])
}

export function reset(stream: number, code: number): Buffer {
  const payload = Buffer.alloc(4)
  payload.writeUInt32BE(code)
  return frame('reset', stream, payload)
}

/** A connection that has said who it is. */
export async function openFrames(url: string, ca: string): Promise<TLSSocket> {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port), ca, ALPNProtocols: ['h2'] })
  await once(socket, 'secureConnect')
  socket.write(PREFACE)
  socket.write(frame('settings', 0, Buffer.alloc(0)))
  socket.resume()
  return socket
}
