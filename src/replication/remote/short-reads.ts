/**
 * Connections that are read a little at a time. undici refuses an answer with too many headers, but parses what it has read
 * to its end, and makes an error with its stack for each further header: 64 KiB of `a:b` took a turn of 0.2 to 0.5 s.
 */
import type { Socket } from 'node:net'
import type { buildConnector } from 'undici'
import { onConnected } from './undici-parts.ts'

/** The most that is parsed after a connection has failed, in bytes. Shorter reads cost no CPU time that can be measured. */
const READ_BYTES = 4096

/** @returns a connector whose sockets give at most 4 KiB for each `read()`, and nothing once they are destroyed */
export function withShortReads(connect: buildConnector.connector): buildConnector.connector {
  return onConnected(connect, readShortly)
}

function readShortly(socket: Socket): void {
  const { read } = socket
  socket.read = (size) => {
    if (socket.destroyed) return null
    // Without a size, what is there is read, and more is asked for.
    const most = Math.min(READ_BYTES, socket.readableLength)
    return read.call(socket, size ?? (most === 0 ? undefined : most))
  }
}
