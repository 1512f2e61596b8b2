/** Frames of HTTP/2 written by hand (RFC 9113 4.1, 6; RFC 7541 6.2.2), for what Node's client would never send. */
import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
const TYPES = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  ping: 6,
  window: 8,
  continuation: 9,
} as const
const END_STREAM = 1
const END_HEADERS = 4
const INITIAL_WINDOW_SIZE = 4

/** @param stream odd; 0 for the connection */
export function frame(type: keyof typeof TYPES, stream: number, payload: Buffer, flags = 0): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = TYPES[type]
  head[4] = flags
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** The head of a request; each header by its letters, in no table. */
export function requestHead(
  stream: number,
  headers: Readonly<Record<string, string>>,
  isWhole = false,
): Buffer {
  const fields = Object.entries(headers).map(([name, value]) =>
    Buffer.concat([Buffer.from([0]), text(name), text(value)]),
  )
  return frame('headers', stream, Buffer.concat(fields), END_HEADERS | (isWhole ? END_STREAM : 0))
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

/** The last of a body. */
export function lastData(stream: number, text: string): Buffer {
  return frame('data', stream, Buffer.from(text), END_STREAM)
}

/** The connection, and each stream that is opened later, may be sent a gigabyte. */
export function wideWindows(): Buffer {
  const setting = Buffer.alloc(6)
  setting.writeUInt16BE(INITIAL_WINDOW_SIZE)
  setting.writeUInt32BE(2 ** 30, 2)
  const more = Buffer.alloc(4)
  more.writeUInt32BE(2 ** 30)
  return Buffer.concat([frame('settings', 0, setting), frame('window', 0, more)])
}

export interface Frame {
  readonly type: string | undefined
  readonly stream: number
  readonly payload: Buffer
}

/** @returns the whole frames of what a server has said */
export function framesOf(bytes: Buffer): Frame[] {
  const names = new Map<number, string>(Object.entries(TYPES).map(([name, type]) => [type, name]))
  const frames: Frame[] = []
  for (let at = 0; at + 9 <= bytes.length; ) {
    const end = at + 9 + bytes.readUIntBE(at, 3)
    if (end > bytes.length) break
    frames.push({
      type: names.get(bytes[at + 3] ?? -1),
      stream: bytes.readUInt32BE(at + 5),
      payload: bytes.subarray(at + 9, end),
    })
    at = end
  }
  return frames
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
