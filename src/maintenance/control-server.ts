import { once } from 'node:events'
import { chmod, mkdir, rm } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { dirname } from 'node:path'
import type { Logger } from 'pino'
import type { Operator } from '../auth/operator.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import {
  type ControlAnswer,
  type ControlCall,
  controlPath,
  MAX_CALL_BYTES,
  MAX_PATH_BYTES,
} from './control-socket.ts'

/** How long a call may take to arrive, in milliseconds. */
const CALL_MS = 10_000
const MAX_CONNECTIONS = 16

export interface ControlOptions {
  /** Held by this process, so that a socket that stands there is left from one that died. */
  readonly dataDir: string
  readonly operator: Operator
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
}

/**
 * Listens on the control socket. Where that cannot be, such as on a file system without sockets, the log says so, and
 * the server does without.
 * @returns what ends it: calls under way are answered first
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
      'the command line does not reach this server: the control socket cannot be made',
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
  // Node would cut it without a word.
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) throw new Error(`${path} is longer than an address may be.`)
  const folder = dirname(path)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await chmod(folder, 0o700)
  await rm(path, { force: true })
  server.listen(path)
  await once(server, 'listening')
}

class Connections {
  readonly #operator: Operator
  readonly #logger: ControlOptions['logger']
  readonly #reading = new Set<Socket>()
  readonly #acting = new Set<Promise<void>>()

  constructor({ operator, logger }: ControlOptions) {
    this.#operator = operator
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
      // Who only looks whether somebody is there asks for nothing.
      if (text === '') socket.end()
      else this.#answer(socket, text)
    })
  }

  #answer(socket: Socket, text: string): void {
    const acting = this.#act(text).then((answer) => {
      socket.end(`${JSON.stringify(answer)}\n`)
      this.#acting.delete(acting)
    })
    this.#acting.add(acting)
  }

  async #act(text: string): Promise<ControlAnswer> {
    try {
      const { act, argument } = callOf(text, this.#operator)
      const result = await (this.#operator[act] as (argument: object) => Promise<unknown>)(argument)
      const { name } = argument as { name?: string }
      this.#logger.info({ act, account: name }, 'done as the command line asked')
      return { result }
    } catch (thrown) {
      const error = asCouchError(thrown)
      if (error.status >= 500) this.#logger.error({ err: error.cause ?? error }, 'a command has failed')
      return { error: { code: error.code, reason: error.message } }
    }
  }

  async close(): Promise<void> {
    for (const socket of this.#reading) socket.destroy()
    await Promise.all(this.#acting)
  }
}

/** @throws bad_request */
function callOf(text: string, operator: Operator): ControlCall {
  const { act, argument } = parsed(text)
  if (act === undefined || !Object.hasOwn(operator, act) || typeof argument !== 'object' || !argument) {
    throw new CouchError('bad_request', 'The running server does not know this command.')
  }
  return { act, argument }
}

function parsed(text: string): Partial<ControlCall> {
  try {
    return (JSON.parse(text) ?? {}) as Partial<ControlCall>
  } catch {
    throw new CouchError('bad_request', 'The call is not understood.')
  }
}
