/**
 * Frames of HTTP/2 that ask for nothing: RFC 9113 10.5. Node ends connections that flood it with SETTINGS, PING,
 * CONTINUATION and streams that are reset, but takes WINDOW_UPDATE and empty DATA without end, and shows no frame to
 * anybody. What shows is bytes that came and were neither a head nor a body.
 */
import { constants, type ServerHttp2Session } from 'node:http2'
import type { Socket } from 'node:net'

/** How often it is looked at. */
const LOOK_MS = 1000
/** Bytes of such frames that a connection may send at once, and a second: 160,000 frames take 15 ms. */
const BURST = 2 * 1024 * 1024
const A_SECOND = 64 * 1024
/** What comes with a byte of use: heads of frames, padding. */
const WITH_USE = 1.25
/** For what it is sent, a client acknowledges: about 26 bytes a frame, which may hold one line of a feed. */
const FOR_SENT = 0.5

/** What of the bytes of a connection was of use. */
export interface UseCount {
  /** Bytes of heads and bodies, as they were handed on. */
  useful: number
}

/**
 * Cuts the connection off when it has sent too much of no use (ENHANCE_YOUR_CALM).
 * @param socket what the session reads
 */
export function watchFrames(
  session: ServerHttp2Session,
  { socket }: { readonly socket: Socket | null },
  count: UseCount,
): void {
  if (socket === null) return
  let left = BURST
  let before = { read: socket.bytesRead, written: socket.bytesWritten, useful: count.useful }
  const look = setInterval(() => {
    const now = { read: socket.bytesRead, written: socket.bytesWritten, useful: count.useful }
    const allowed = (now.useful - before.useful) * WITH_USE + (now.written - before.written) * FOR_SENT
    left = Math.min(BURST, left + A_SECOND + allowed - (now.read - before.read))
    before = now
    if (left >= 0 || session.destroyed) return
    clearInterval(look)
    session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM)
    setImmediate(() => socket.destroy())
  }, LOOK_MS)
  look.unref()
  session.once('close', () => clearInterval(look))
}
