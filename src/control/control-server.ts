import { once } from 'node:events'
import { chmod, mkdir, rm } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { dirname } from 'node:path'
import type { Logger } from 'pino'
import { asCouchError, CouchError } from '../core/errors.ts'
import { CONTROL_COMMANDS, type ControlCommands } from './control-commands.ts'
import {
  type ControlAnswer,
  type ControlCall,
  controlPath,
  MAX_CALL_BYTES,
  MAX_PATH_BYTES,
} from './control-socket.ts'

/** How long a call may take to arrive, in milliseconds. */
const CALL_MS = 10_000
/** Interval of the empty lines that show a client that its call is under way, in milliseconds. */
const KEEP_ALIVE_MS = 15_000
const MAX_CONNECTIONS = 16

interface ControlOptions {
  /** Locked by this process, so an existing socket is left over from a dead process. */
  readonly dataDir: string
  readonly controls: ControlCommands
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
}

/**
 * Listens on the control socket. If it cannot be created, for example on a file system without sockets, the server logs
 * that and runs without it.
 * @returns a function that stops listening, after the calls under way are answered
 */
export async function serveControl(options: ControlOptions): Promise<() => Promise<void>> {
  const path = controlPath(options.dataDir)
  const connections = new Connections(options)
  const server = createServer({ allowHalfOpen: true }, (socket) => connections.serve(socket))
  server.maxConnections = MAX_CONNECTIONS
  try {
    await listen(server, path)
  } catch (error) {
    const reason = (error as Error).message
    options.logger.warn(
      { reason },
      'cannot create the control socket: the command line cannot reach this server',
    )
    return async () => undefined
  }
  return async () => {
    const closed = once(server, 'close')
    server.close()
    await connections.close()
    await closed
  }
}

async function listen(server: Server, path: string): Promise<void> {
  // Node would truncate the path silently.
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) throw new Error(`${path} is too long for a socket address.`)
  const folder = dirname(path)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await chmod(folder, 0o700)
  await rm(path, { force: true })
  server.listen(path)
  await once(server, 'listening')
}

class Connections {
  readonly #controls: ControlCommands
  readonly #logger: ControlOptions['logger']
  readonly #reading = new Set<Socket>()
  readonly #running = new Set<Promise<void>>()

  constructor({ controls, logger }: ControlOptions) {
    this.#controls = controls
    this.#logger = logger
  }

  serve(socket: Socket): void {
    let text = ''
    this.#reading.add(socket)
    socket.setEncoding('utf8').setTimeout(CALL_MS, () => socket.destroy())
    socket.on('error', () => socket.destroy())
    socket.on('close', () => this.#reading.delete(socket))
    socket.on('data', (chunk: string) => {
      text += chunk
      if (text.length > MAX_CALL_BYTES) socket.destroy()
    })
    socket.on('end', () => {
      this.#reading.delete(socket)
      socket.setTimeout(0)
      // A client that only checks whether a server listens sends nothing.
      if (text === '') socket.end()
      else this.#answer(socket, text)
    })
  }

  #answer(socket: Socket, text: string): void {
    const send = (answer: ControlAnswer | null) => {
      // A client that does not read gets only the final answer.
      if (socket.writableLength === 0) socket.write(answer === null ? '\n' : `${JSON.stringify(answer)}\n`)
    }
    const keepAlive = setInterval(() => send(null), KEEP_ALIVE_MS)
    const disconnected = new AbortController()
    socket.on('close', () => disconnected.abort())
    const running = this.#run(text, (progress) => send({ progress }), disconnected.signal).then((answer) => {
      clearInterval(keepAlive)
      socket.end(`${JSON.stringify(answer)}\n`)
      this.#running.delete(running)
    })
    this.#running.add(running)
  }

  /** @param signal aborts when the client has disconnected */
  async #run(
    text: string,
    onProgress: (progress: object) => void,
    signal: AbortSignal,
  ): Promise<ControlAnswer> {
    try {
      const { act, argument } = callOf(text)
      const work = this.#controls[act] as (...args: readonly unknown[]) => Promise<unknown>
      const result = await work(argument, onProgress, signal)
      const { name } = argument as { name?: string }
      this.#logger.info(
        { act, ...(name !== undefined && { account: name }) },
        'ran a command of the command line',
      )
      return { result }
    } catch (thrown) {
      const error = asCouchError(thrown)
      if (error.status >= 500)
        this.#logger.error({ err: error.cause ?? error }, 'a command of the command line failed')
      return { error: { code: error.code, reason: error.message } }
    }
  }

  async close(): Promise<void> {
    for (const socket of this.#reading) socket.destroy()
    await Promise.all(this.#running)
  }
}

/** @throws bad_request */
function callOf(text: string): ControlCall {
  const { act, argument } = parseCall(text)
  if (act === undefined || !CONTROL_COMMANDS.includes(act) || typeof argument !== 'object' || !argument) {
    throw new CouchError('bad_request', 'The running server does not know this command.')
  }
  return { act, argument }
}

function parseCall(text: string): Partial<ControlCall> {
  try {
    return (JSON.parse(text) ?? {}) as Partial<ControlCall>
  } catch {
    throw new CouchError('bad_request', 'The call is not valid JSON.')
  }
}
