/** The socket over which the bytes of a file go between a command and the server. */
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { CONTROL_FOLDER, MAX_PATH_BYTES } from '../maintenance/control-socket.ts'

export interface TransferSocket {
  readonly path: string
  /** The first connection that comes; others are refused. */
  readonly connected: Promise<Socket>
  close(): void
}

/** @param dataDir absolute @throws when there can be no socket */
export async function listenForOne(dataDir: string): Promise<TransferSocket> {
  const { path, remove } = placeFor(dataDir)
  const server = createServer({ allowHalfOpen: true })
  server.maxConnections = 1
  server.listen(path)
  await once(server, 'listening')
  const connected = once(server, 'connection').then(([socket]) => socket as Socket)
  let socket: Socket | undefined
  connected.then(
    (taken) => {
      socket = taken
    },
    () => undefined,
  )
  const close = () => {
    socket?.destroy()
    server.close()
    remove()
  }
  return { path, connected, close }
}

/**
 * In the data folder, which a server that is shut in may reach and nobody else; where its path is too long for a
 * socket, no server listens there, and what is asked is done by this very process.
 */
function placeFor(dataDir: string): { readonly path: string; remove(): void } {
  const path = join(dataDir, CONTROL_FOLDER, `file-${process.pid}`)
  if (Buffer.byteLength(path) <= MAX_PATH_BYTES) {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    chmodSync(dirname(path), 0o700)
    rmSync(path, { force: true })
    return { path, remove: () => rmSync(path, { force: true }) }
  }
  const folder = mkdtempSync(join(tmpdir(), 'settee-'))
  return { path: join(folder, 'file'), remove: () => rmSync(folder, { recursive: true, force: true }) }
}
