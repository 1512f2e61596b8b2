/**
 * Every route x who asks x the kind of server: the status, row by row; protocol.md 11.4, 11.6, 19.7 and docs/hosted.md.
 * A route without a row fails, and so does a row without its route. Whoever is refused has changed nothing, and nobody
 * is told of a database that is not his.
 */
import t, { type Test } from 'tap'
import type { Access } from '../../src/http/route-table.ts'
import { sharedSettings, type TestResponse } from '../helpers/server.ts'
import {
  accounts,
  anybody,
  CALLERS,
  type Caller,
  CONDITIONS,
  databaseAdmins,
  maintainers,
  members,
  metricsReaders,
  owners,
  type Row,
  type Rows,
  type Statuses,
  serverAdmins,
  tenants,
} from './matrix.ts'
import {
  type Asked,
  basic,
  type Credentials,
  DATABASE,
  type MatrixServer,
  startCondition,
} from './matrix-conditions.ts'
import { databaseRows } from './matrix-database.rows.ts'
import { documentRows } from './matrix-documents.rows.ts'
import { type Other, otherRows } from './matrix-others.rows.ts'
import { publicRows } from './matrix-public.rows.ts'
import { serverRows } from './matrix-server.rows.ts'
import { setteeRows } from './matrix-settee.rows.ts'
import { openedUsersRows, usersRows } from './matrix-users.rows.ts'
import { startMemoryServer } from './memory-server.ts'

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'COPY', 'PATCH', 'OPTIONS', 'DELETE'] as const
// Some ten thousand requests; more than tap allows a file that is run by itself on a busy machine.
t.setTimeout(900_000)

/** Requests at once. */
const AT_ONCE = 8

const TABLES: readonly Rows[] = [serverRows, setteeRows, databaseRows, documentRows, publicRows, usersRows]
const ROWS = TABLES.flatMap((table) =>
  Object.entries(table).flatMap(([url, rows]) => rows.map((row) => ({ url, row }))),
)

/** The answers of each rule's paths to methods that they do not have. */
const RULES: Readonly<Record<Access, (status: number) => Statuses>> = {
  public: anybody,
  user: accounts,
  member: members,
  lister: members,
  'db admin': databaseAdmins,
  'db admin or owner': databaseAdmins,
  maintainer: maintainers,
  tenant: tenants,
  owner: owners,
  metrics: metricsReaders,
  'server admin': serverAdmins,
}

function partsOf([line]: Row): [method: string, path: string] {
  const at = line.indexOf(' ')
  return [line.slice(0, at), line.slice(at + 1)]
}

t.test('every method of every path has a row', async (t) => {
  // Nothing is done, and the answer says which path was meant; that holds for what access.ts refuses as well.
  const { app, url } = await startMemoryServer(t, {}, (app) => {
    app.addHook('onRequest', async (_request, reply) => reply.code(204).send())
    app.addHook('onSend', async (request, reply) => {
      reply.header('X-Route', request.routeOptions.url)
    })
  })
  const registered = app.paths.flatMap((path) =>
    Object.keys(path.methods).map((name) => `${name} ${path.url}`),
  )
  const stated = ROWS.map(({ url, row }) => `${partsOf(row)[0]} ${url}`)
  t.strictSame([...new Set(stated)].sort(), registered.sort())
  for (const row of ROWS) {
    const [method, path] = partsOf(row.row)
    const answer = await fetch(url + path.replace(/\{\w+\}/g, 'x'), { method })
    t.equal(answer.headers.get('x-route'), row.url, `${method} ${path}`)
  }
})

interface Cell {
  readonly of: string
  readonly at: number
  readonly expected: number
  readonly asked: Asked
}

const ASKED = process.env.SETTEE_MATRIX?.split(',') ?? CONDITIONS
for (const condition of CONDITIONS.filter((name) => ASKED.includes(name))) {
  t.test(condition, async (t) => {
    const server = await startCondition(t, condition)
    await t.test('rows', async (t) => {
      await check(
        t,
        server,
        ROWS.map(({ row }) => row),
      )
    })
    await t.test('methods that a path does not have', async (t) => {
      const { app } = await startMemoryServer(t)
      const rows = app.paths.flatMap(({ url, methods, access }) => {
        const row = ROWS.find((row) => row.url === url)?.row
        if (row === undefined) return []
        const [, example] = partsOf(row)
        const known = new Set(Object.keys(methods))
        const others = METHODS.filter((name) => !known.has(name === 'HEAD' ? 'GET' : name))
        return others.map((name): Row => [`${name} ${exampleOf(example)}`, RULES[access](405)])
      })
      await check(t, server, rows)
    })
    if (condition === 'open') return
    await t.test('other callers', async (t) => checkOthers(t, server))
    await t.test('_users, opened by an admin', async (t) => {
      await server.admin('PUT', '/_node/_local/_config/couchdb/users_db_security_editable', '"true"')
      await server.settle()
      await server.admin('PUT', '/_users/_security', { members: { names: [], roles: [] } })
      await check(t, server, openedUsersRows)
    })
  })
}

async function checkOthers(t: Test, server: MatrixServer): Promise<void> {
  const credentials = await othersOf(server)
  await server.settle()
  for (const [who, line, secured, hosted, sent] of otherRows) {
    const expected = server.condition === 'hosted' ? hosted : secured
    if (expected === null) continue
    const [method, path] = partsOf([line, anybody(expected)])
    const answer = await server.askWith(credentials[who], await server.prepare(method, path, sent))
    t.equal(answer.status, expected, `${who}: ${line}`)
  }
}

/** Creates the accounts, and suspends one. */
async function othersOf(server: MatrixServer): Promise<Readonly<Record<Other, Credentials>>> {
  const token = async (account: string, isAdmin = false) => {
    const json = { name: `of ${account} ${isAdmin}`, admin: isAdmin }
    const made = await server.admin('POST', `/_settee/tokens?account=${account}`, json)
    return basic(account, (made.json as { token: string }).token)
  }
  for (const [name, roles] of [
    ['suspended', []],
    ['metrics', ['_metrics']],
  ] as const) {
    const user = { name, type: 'user', roles, password: name }
    await server.admin('PUT', `/_users/org.couchdb.user:${name}`, user)
  }
  const login = { json: { name: 'suspended', password: 'suspended' } }
  const session = await server.ask('anonymous', { method: 'POST', path: '/_session', sent: login })
  if (server.condition === 'hosted') {
    await server.admin('PUT', '/notes-of-suspended?owner=suspended')
    await server.admin('PUT', '/_settee/accounts/suspended', { suspended: true })
  }
  return {
    d: basic('d'),
    e: basic('e'),
    metrics: basic('metrics'),
    suspended: basic('suspended'),
    cookie: { cookie: String(session.headers['set-cookie']).split(';')[0] ?? '' },
    'token of m': await token('m'),
    'token of d': await token('d'),
    'token of s': await token('s'),
    'admin token of s': await token('s', true),
  }
}

/** Nothing is made for what will not be touched. */
function exampleOf(path: string): string {
  return path.replace(/\{(?!db\})\w+\}/g, (name) => (name === '{own}' ? '{db}' : 'x'))
}

/** Sends all rows. The refused ones come first, the safe ones last; both must change nothing. */
async function check(t: Test, server: MatrixServer, rows: readonly Row[]): Promise<void> {
  const cells = await prepared(server, rows)
  await server.settle()
  const before = await stateOf(server)
  const seen = new Map<string, number[]>()
  const run = async (some: readonly Cell[]) => {
    await inTurn(some, async ({ of, at, asked }) => {
      const caller = CALLERS[at] as Caller
      const answer = await server.ask(caller, asked)
      if (server.condition !== 'open') checkSecrecy(t, caller, asked, answer)
      checkPolicy(t, asked, answer)
      seen.set(of, Object.assign(seen.get(of) ?? [], { [at]: answer.status }))
    })
  }
  await run(cells.filter(({ expected }) => expected >= 400))
  t.strictSame(await stateOf(server), before, 'a refused request changes nothing')
  const allowed = cells.filter(({ expected }) => expected < 400)
  await run(allowed.filter(({ asked }) => !isSafe(asked)))
  const after = await stateOf(server)
  await run(allowed.filter(({ asked }) => isSafe(asked)))
  t.strictSame(await stateOf(server), after, 'GET and HEAD change nothing')
  const expected = new Map<string, number[]>()
  for (const cell of cells) {
    expected.set(cell.of, Object.assign(expected.get(cell.of) ?? [], { [cell.at]: cell.expected }))
  }
  for (const [of, statuses] of expected) t.strictSame(seen.get(of), statuses, of)
}

async function prepared(server: MatrixServer, rows: readonly Row[]): Promise<Cell[]> {
  const cells: Cell[] = []
  await inTurn([...rows.entries()], async ([serial, row]) => {
    const [, statuses, sent] = row
    const columns = statuses[server.condition]
    if (columns === null) return
    const [method, path] = partsOf(row)
    for (const name of method === 'GET' ? ['GET', 'HEAD'] : [method]) {
      for (const [at, expected] of columns.entries()) {
        const asked = await server.prepare(name, path, sent)
        const isOfFiles = path.startsWith('/_settee/backups')
        const isMissing = !server.hasFiles && isOfFiles && !isRefusal(expected)
        cells.push({ of: `${serial} ${name} ${path}`, at, expected: isMissing ? 501 : expected, asked })
      }
    }
  })
  return cells
}

/** @returns whether somebody is not let in, or not by this method */
function isRefusal(status: number): boolean {
  return status === 401 || status === 403 || status === 405
}

async function inTurn<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  const queue = items.values()
  const worker = async () => {
    for (const item of queue) await work(item)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}

/** A caller without rights to a database learns only what they have sent. */
function checkSecrecy(t: Test, caller: Caller, { path, sent }: Asked, { text }: TestResponse): void {
  if (caller !== 'anonymous' && caller !== 'o') return
  if (`${path}${JSON.stringify(sent)}`.includes(DATABASE)) return
  if (text.includes(DATABASE)) t.fail(`${caller} is told of ${DATABASE}`, { path, text })
}

function isSafe({ method }: Asked): boolean {
  return method === 'GET' || method === 'HEAD'
}

/** What settee itself writes, which no browser runs. */
const OWN_TYPE =
  /^(?:application\/json|application\/x-ndjson|text\/event-stream|text\/plain; version=0\.0\.4; charset=utf-8)$/

/** Nothing runs as a page of the origin, except the console. */
function checkPolicy(t: Test, { method, path }: Asked, { headers }: TestResponse): void {
  const what = `${method} ${path}`
  if (headers['x-content-type-options'] !== 'nosniff') t.fail(`${what} has no nosniff`, headers)
  const policy = headers['content-security-policy']
  if (policy === 'sandbox' || path.startsWith('/_utils')) return
  if (policy !== undefined || !OWN_TYPE.test(String(headers['content-type'] ?? '')))
    t.fail(`${what} has no sandbox`, headers)
}

/** All that somebody might have changed. */
async function stateOf(server: MatrixServer): Promise<unknown> {
  const ofDatabase = [
    '_changes?include_docs=true',
    '_local_docs?include_docs=true',
    '_security',
    '_revs_limit',
  ]
  const paths = [
    '/_all_dbs',
    '/_users/_changes?include_docs=true',
    '/_node/_local/_config',
    '/_settee/tokens?account=m',
    ...[...ofDatabase, '_purged_infos', '_purged_infos_limit'].map((name) => `/${DATABASE}/${name}`),
    ...(server.condition === 'hosted' ? ['/_settee/accounts?limit=1000', `/_settee/owners/${DATABASE}`] : []),
  ]
  const found = []
  for (const path of paths) {
    const { json } = await server.admin('GET', path)
    found.push([path, comparable(path, json)])
  }
  return found
}

/** @returns an answer without what changes by itself, or differs between nodes */
function comparable(path: string, json: TestResponse['json']): unknown {
  if (path.startsWith('/_settee/accounts')) return withoutUsage(json)
  if (path.startsWith('/_settee/tokens')) return withoutUses(json)
  return path.endsWith('/_config') ? sharedSettings(json) : json
}

/** Every node knows of its own uses first. */
function withoutUses({ tokens }: { tokens: readonly object[] }): unknown {
  return tokens.map((token) => ({ ...token, last_use: null }))
}

/** The usage of accounts is measured from time to time. */
function withoutUsage({ accounts }: { accounts: readonly { usage: unknown }[] }): unknown {
  return accounts.map((account) => ({ ...account, usage: null }))
}
