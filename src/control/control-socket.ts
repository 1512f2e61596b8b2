import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { CouchError, ERRORS, type ErrorName } from '../core/errors.ts'
import { CONTROL_COMMANDS, type ControlCommands } from './control-commands.ts'

/** How long the server may be silent, in milliseconds; during a call it sends empty lines more often. */
const SILENCE_MS = 60_000

/** The codes when no server is running: no socket, a socket left over from a dead server, or no folder. */
const NO_SERVER = new Set(['ENOENT', 'ECONNREFUSED', 'ENOTDIR', 'ENOTSOCK'])

/**
 * Connects to the server that runs on a data folder.
 * @param dataDir absolute
 * @returns its commands; null if no server listens
 * @throws Error if the user may not open the socket
 */
export async function reachServer(dataDir: string): Promise<ControlCommands | null> {
  const socket = await connect(dataDir)
  if (socket === null) return null
  socket.destroy()
  const commands = CONTROL_COMMANDS.map((act) => [
    act,
    (argument: object, onProgress?: Listener) => ask(dataDir, { act, argument }, onProgress),
  ])
  return Object.fromEntries(commands) as ControlCommands
}

type Listener = (progress: object) => void

async function connect(dataDir: string): Promise<Socket | null> {
  const path = controlPath(dataDir)
  // A server on such a path runs without the socket, and has logged that.
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return null
  const socket = createConnection({ path, allowHalfOpen: true })
  try {
    await once(socket, 'connect')
    return socket
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    if (NO_SERVER.has(code)) return null
    throw new Error(`The running server cannot be reached: ${path} cannot be opened (${code}).`, {
      cause: error,
    })
  }
}

async function ask(dataDir: string, call: ControlCall, onProgress?: Listener): Promise<unknown> {
  const socket = await connect(dataDir)
  if (socket === null) throw new Error('The server has stopped; try again.')
  socket.on('error', () => undefined)
  socket.setTimeout(SILENCE_MS, () => socket.destroy(new Error('timeout')))
  socket.end(`${JSON.stringify(call)}\n`)
  for await (const answer of answersOf(socket)) {
    if ('progress' in answer) onProgress?.(answer.progress)
    else if ('result' in answer) return answer.result
    else throw refusalOf(answer.error)
  }
  throw new Error('The server gave no answer; check whether the change was made.')
}

/** The server's lines, until it ends. An empty line means that the call is under way. */
async function* answersOf(socket: Socket): AsyncGenerator<ControlAnswer> {
  try {
    for await (const line of createInterface({ input: socket })) {
      if (line !== '') yield JSON.parse(line) as ControlAnswer
    }
  } finally {
    socket.destroy()
  }
}

function refusalOf({ code, reason }: { readonly code: string; readonly reason: string }): CouchError {
  return new CouchError(Object.hasOwn(ERRORS, code) ? (code as ErrorName) : 'internal_server_error', reason)
}

/**
 * The folder of the control socket, in the data folder. The socket needs no password: a user who can open it has the
 * rights of the folder's owner, who can also stop the server and change its files. One connection carries one call: the
 * client sends a line of JSON, and the server answers with any number of lines of progress and one line with the
 * result.
 *
 * The folder has mode 0700, because a new socket has the mode of the umask until it is changed.
 */
export const CONTROL_FOLDER = 'control'

/** Bytes of a path that fit into a socket address on every system, without the NUL at the end. */
export const MAX_PATH_BYTES = 103
export const MAX_CALL_BYTES = 65_536

export interface ControlCall {
  readonly act: keyof ControlCommands
  readonly argument: object
}

/** `error` is a CouchError's name and reason. */
export type ControlAnswer =
  | { readonly progress: object }
  | { readonly result: unknown }
  | { readonly error: { readonly code: string; readonly reason: string } }

/** @param dataDir absolute */
export function controlPath(dataDir: string): string {
  return join(dataDir, CONTROL_FOLDER, 'settee.sock')
}
