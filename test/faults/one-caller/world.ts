/** A server with a quiet tenant and a caller who means harm, each with an address, an account and a database. */
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { type ServerProcess, startServerProcess } from '../server-process.ts'
import { type QuietTenant, startQuietTenant } from './quiet-tenant.ts'

/** The quiet tenant connects from an address of its own, as another home does. */
const QUIET_ADDRESS = '127.0.0.3'

/** `hosted`: tenants who do not know each other. `single`: accounts of one server, each the admin of a database. */
export type Mode = 'hosted' | 'single'

export type Caller = 'stranger' | 'tenant' | 'admin'

export interface Sent {
  readonly method: string
  readonly path: string
  readonly caller: Caller
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
}

export interface World {
  readonly mode: Mode
  readonly server: ServerProcess
  readonly quiet: QuietTenant
  /** The attacker's database. */
  readonly database: string
  /** Gives the attacker another address: what the server holds against the last one shall not soften the next attack. */
  move(): void
  /** Sends one request from the attacker's address and reads its answer away. @returns the status; 0 if it was cut off */
  send(sent: Sent, signal: AbortSignal): Promise<number>
  /**
   * How long each request took of an account that connects anew from the attacker's address every 50 ms, in ms, until the
   * signal is aborted.
   */
  neighbour(signal: AbortSignal): Promise<number[]>
  /** A connection from the attacker's address, closed when the attack ends. */
  open(signal: AbortSignal): Socket
  headersOf(caller: Caller): Readonly<Record<string, string>>
}

const PASSWORDS = { tenant: 'caller:secret-of-caller', admin: 'root:secret-of-root' } as const

/** Starts a server in a process of its own; it ends with the test. */
export async function startWorld(t: Test, mode: Mode): Promise<World> {
  const ini = `[admins]\nroot = secret-of-root\n${mode === 'hosted' ? '[settee]\nmode = hosted\n' : ''}`
  const server = await startServerProcess(t, { isBuilt: true, ini })
  await makeTenant(server, mode, 'caller')
  await makeTenant(server, mode, 'quiet')
  const quiet = startQuietTenant({
    port: server.port,
    pid: server.pid(),
    localAddress: QUIET_ADDRESS,
    database: '/of-quiet',
    headers: basic('quiet:secret-of-quiet'),
  })
  t.teardown(() => quiet.stop())
  let moves = 0
  const address = () => `127.0.1.${1 + (moves % 250)}`
  return {
    mode,
    move: () => {
      moves += 1
    },
    server,
    quiet,
    database: '/of-caller',
    send: (sent, signal) => send(server.port, address(), sent, signal),
    neighbour: async (signal) => {
      const times: number[] = []
      while (!signal.aborted) {
        const since = performance.now()
        await send(server.port, address(), { method: 'GET', path: '/of-caller', caller: 'tenant' }, signal)
        times.push(performance.now() - since)
        await sleep(50)
      }
      return times.sort((a, b) => a - b)
    },
    open: (signal) => open(server.port, address(), signal),
    headersOf,
  }
}

async function makeTenant(server: ServerProcess, mode: Mode, name: string): Promise<void> {
  const must = async (caller: string, path: string, body?: object) => {
    const { status, json } = await server.ask('PUT', path, body, basic(caller))
    if (status >= 300) throw new Error(`PUT ${path}: ${status} ${JSON.stringify(json)}`)
  }
  const user = { name, type: 'user', roles: [], password: `secret-of-${name}` }
  await must(PASSWORDS.admin, `/_users/org.couchdb.user:${name}`, user)
  const owner = mode === 'hosted' ? `${name}:secret-of-${name}` : PASSWORDS.admin
  await must(owner, `/of-${name}`)
  const names = { names: [name], roles: [] }
  await must(owner, `/of-${name}/_security`, { admins: names, members: names })
}

function basic(credentials: string): Record<string, string> {
  return { authorization: `Basic ${Buffer.from(credentials).toString('base64')}` }
}

function headersOf(caller: Caller): Record<string, string> {
  return caller === 'stranger' ? {} : basic(PASSWORDS[caller])
}

function send(port: number, localAddress: string, sent: Sent, signal: AbortSignal): Promise<number> {
  const { method, path, caller, headers, body } = sent
  return new Promise((resolve) => {
    const asked = request({
      port,
      host: '127.0.0.1',
      localAddress,
      agent: false,
      method,
      path,
      signal,
      headers: { 'content-type': 'application/json', ...headersOf(caller), ...headers },
    })
    let status = 0
    asked.on('error', () => resolve(status))
    asked.on('close', () => resolve(status))
    asked.on('response', (answer) => {
      status = answer.statusCode ?? 0
      answer.on('error', () => undefined)
      answer.resume()
      answer.on('end', () => resolve(status))
    })
    asked.end(body)
  })
}

function open(port: number, localAddress: string, signal: AbortSignal): Socket {
  const socket = connect({ port, host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined)
  signal.addEventListener('abort', () => socket.destroy(), { once: true })
  return socket
}
