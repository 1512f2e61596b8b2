/** The servers that the app syncs with in tests, each a process of its own. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type ChildServer, startChildServer } from '../../helpers/child-server.ts'
import { temporaryFolder } from '../../helpers/server.ts'

export const ADMIN = 'root:secret'

export interface Server extends ChildServer {
  /** Asks as the admin, or as `name:password`. @returns status and JSON */
  call(method: string, path: string, body?: unknown, auth?: string): Promise<Answer>
  /** An account, its password the name. */
  addAccount(name: string): Promise<void>
  /** A database that the account and the admin may use. */
  addDatabase(database: string, account: string): Promise<void>
  /** The ids in a database, those of design documents among them. */
  ids(database: string): Promise<readonly string[]>
}

export interface Answer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
}

/** @param origin of the page that it lets in; empty: none */
export async function startServer(t: Test, origin: string, mode: 'single' | 'hosted'): Promise<Server> {
  const dataDir = await temporaryFolder(t)
  const lines = [
    '[admins]\nroot = secret',
    '[chttpd_auth]\niterations = 10',
    ...(origin === '' ? [] : [`[cors]\norigins = ${origin}`]),
    ...(mode === 'hosted' ? ['[settee]\nmode = hosted'] : []),
  ]
  await writeFile(join(dataDir, 'local.ini'), `${lines.join('\n')}\n`)
  const child = await startChildServer(t, { dataDir })
  const call: Server['call'] = (method, path, body, auth = ADMIN) => ask(child.url, method, path, body, auth)
  return {
    ...child,
    call,
    addAccount: async (name) => {
      const user = { name, password: name, roles: [], type: 'user' }
      await made(call('PUT', `/_users/org.couchdb.user:${name}`, user))
    },
    addDatabase: async (database, account) => {
      await made(call('PUT', `/${database}`))
      const names = { names: [account], roles: [] }
      await made(call('PUT', `/${database}/_security`, { admins: names, members: names }))
    },
    ids: async (database) => {
      const { json } = await call('GET', `/${database}/_all_docs`)
      return (json.rows as { id: string }[]).map(({ id }) => id)
    },
  }
}

async function ask(url: string, method: string, path: string, body: unknown, auth: string): Promise<Answer> {
  const answer = await fetch(url + path, {
    method,
    headers: {
      authorization: `Basic ${Buffer.from(auth).toString('base64')}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, json: await answer.json() }
}

async function made(answer: Promise<Answer>): Promise<void> {
  const { status, json } = await answer
  if (status >= 300) throw new Error(`${status} ${JSON.stringify(json)}`)
}
