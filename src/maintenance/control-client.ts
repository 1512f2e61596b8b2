import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import type { Operator } from '../auth/operator.ts'
import { CouchError, ERRORS, type ErrorName } from '../core/errors.ts'
import { type ControlAnswer, type ControlCall, controlPath, MAX_PATH_BYTES } from './control-socket.ts'

/** How long an answer may take, in milliseconds: a password may wait behind others to be hashed. */
const ANSWER_MS = 60_000

/** What says that no server listens there: no socket, one that is left from a dead server, or no folder. */
const NOBODY = new Set(['ENOENT', 'ECONNREFUSED', 'ENOTDIR', 'ENOTSOCK'])

/**
 * Looks for the server that runs on a data folder.
 * @param dataDir absolute
 * @returns its operator; null when none listens there
 * @throws Error when this account may not open the socket
 */
export async function reachServer(dataDir: string): Promise<Operator | null> {
  const socket = await connect(dataDir)
  if (socket === null) return null
  socket.destroy()
  const call = (act: ControlCall['act']) => (argument: object) => ask(dataDir, { act, argument })
  return {
    setPassword: call('setPassword'),
    addAccount: call('addAccount'),
    listAccounts: call('listAccounts'),
    deleteAccount: call('deleteAccount'),
  } as Operator
}

async function connect(dataDir: string): Promise<Socket | null> {
  const path = controlPath(dataDir)
  // Such a server has said that it does without.
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return null
  const socket = createConnection({ path, allowHalfOpen: true })
  try {
    await once(socket, 'connect')
    return socket
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    if (NOBODY.has(code)) return null
    throw new Error(`The running server cannot be reached: ${path} may not be opened (${code}).`, {
      cause: error,
    })
  }
}

async function ask(dataDir: string, call: ControlCall): Promise<unknown> {
  const socket = await connect(dataDir)
  if (socket === null) throw new Error('The server has stopped; try again.')
  socket.setEncoding('utf8').setTimeout(ANSWER_MS, () => socket.destroy(new Error('timeout')))
  socket.end(`${JSON.stringify(call)}\n`)
  const answer = answerOf(await textOf(socket))
  if ('result' in answer) return answer.result
  const { code, reason } = answer.error
  throw new CouchError(Object.hasOwn(ERRORS, code) ? (code as ErrorName) : 'internal_server_error', reason)
}

async function textOf(socket: Socket): Promise<string> {
  let text = ''
  try {
    for await (const chunk of socket) text += chunk as string
  } catch {
    return ''
  }
  return text
}

function answerOf(text: string): ControlAnswer {
  if (text === '') throw new Error('The server gave no answer; look whether the change was made.')
  return JSON.parse(text) as ControlAnswer
}
