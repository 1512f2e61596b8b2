/**
 * Tests that were written for one server, on several nodes over one PostgreSQL behind nginx, which sends requests to each
 * node in turn, so that every other request meets another node:
 *
 *     testOverNodes(t)
 *     await import('../../protocol/nano.test.ts')
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parse } from 'ini'
import type { Test } from 'tap'
import { nginxOver } from './node-balancers.ts'
import { startNodes } from './node-processes.ts'
import { type PostgresServer, startPostgres } from './postgres-server.ts'
import {
  reached,
  settled,
  sharedTestServer,
  startTestServersBy,
  type TestServer,
  type TestServerOptions,
} from './server.ts'

const NODES = 2
/** docs/scaling.md says about a second. */
const SETTINGS_MS = 1200

/**
 * @param file the root of a test file, for whose tests there is one PostgreSQL, and one pair of nodes for those that need
 *   nothing particular of a server
 */
export function testOverNodes(file: Pick<Test, 'teardown' | 'setTimeout'>): void {
  // Each start takes seconds on a busy machine.
  file.setTimeout(900_000)
  let postgres: Promise<PostgresServer> | undefined
  const start = async (t: Pick<Test, 'teardown'>, options: TestServerOptions): Promise<TestServer> => {
    postgres ??= startPostgres(file)
    const store = await (await postgres).createDatabase()
    const { admins = {}, ...settings } = await settingsOf(options)
    const { COUCHDB_USER, COUCHDB_PASSWORD } = options.env ?? {}
    const [admin = COUCHDB_USER === undefined ? undefined : [COUCHDB_USER, COUCHDB_PASSWORD]] =
      Object.entries(admins)
    const nodes = await startNodes(t, NODES, {
      args: ['--store', store, ...(options.hosted === true ? ['--hosted'] : [])],
      env: {
        SETTEE_TRUSTED_PROXIES: '127.0.0.1',
        ...(admin !== undefined && { COUCHDB_USER: admin[0], COUCHDB_PASSWORD: admin[1] }),
        ...options.env,
      },
    })
    const urls = nodes.map(({ url }) => url)
    const { url } = await nginxOver(t, urls, { hasAffinity: false, isPlain: true })
    const server = reached(t, url, {
      secureUrl: '',
      isProxied: true,
      settingsMs: SETTINGS_MS,
      dataDir: nodes[0]?.dataDir ?? '',
      start: async () => {
        await Promise.all(nodes.map((node) => node.start()))
      },
      stop: async () => {
        await Promise.all(nodes.map((node) => node.stop()))
      },
    })
    for (const [section, keys] of Object.entries(settings)) {
      for (const [key, value] of Object.entries(keys)) {
        const answer = await server.request('PUT', `/_node/_local/_config/${section}/${key}`, {
          body: JSON.stringify(value),
          ...(admin !== undefined && { auth: admin.join(':') }),
        })
        if (answer.status !== 200) throw new Error(`${section}/${key} was answered ${answer.text}`)
      }
    }
    if (Object.keys(settings).length > 0) await settled(server)
    return server
  }
  const [common, shared] = [1, 2].map(() => sharedTestServer(file, (t) => start(t, {}))) as [Shared, Shared]
  let isLent = false
  startTestServersBy(async (t, options) => {
    if (isLent || Object.keys(options).length > 0) return start(t, options)
    isLent = true
    t.teardown(() => {
      isLent = false
    })
    return common()
  }, shared)
}

type Shared = () => Promise<TestServer>

type Settings = Readonly<Record<string, Readonly<Record<string, string>>>>

/** @returns what a test has written into its server's local.ini, which is the store's on nodes */
async function settingsOf({ dataDir }: TestServerOptions): Promise<Settings> {
  if (dataDir === undefined) return {}
  return parse(await readFile(join(dataDir, 'local.ini'), 'utf8').catch(() => '')) as Settings
}
