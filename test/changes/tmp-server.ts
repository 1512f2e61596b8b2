import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import type { Test } from 'tap'
import { buildApp } from '../../src/app.ts'
import { adminAccounts } from '../../src/auth/admins.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { readDocIds } from '../../src/changes/doc-ids.ts'
import { openConfig } from '../../src/config/config.ts'
import { CouchError } from '../../src/core/errors.ts'
import { DEFAULT_LIMITS } from '../../src/core/types.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import type { DatabaseHandle, Databases } from '../../src/threads/databases.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { FakeDatabase } from './helpers.ts'

export async function startTestServer(t: Test) {
  const dataDir = await mkdtemp(join(tmpdir(), 'settee-http-'))
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  await config.set('chttpd_auth', 'iterations', '10')
  const logger = pino({ level: 'warn' })
  const engine = memoryEngine()
  const catalog = await engine.openCatalog()
  const handles = new Map<string, { h: DatabaseHandle; f: FakeDatabase }>()
  const databases = {
    serverUuid: 'x', names: () => [...handles.keys()],
    get: (name: string) => { const h = handles.get(name); if (!h) throw new CouchError('no_database'); return h.h },
    create: async (name: string) => {
      const { incarnation } = await catalog.create(name)
      const store = await engine.openDatabase(name)
      const f = new FakeDatabase(store)
      const db = storeDatabase(store, () => DEFAULT_LIMITS, (security) => f.emit({ type: 'secured', security }))
      const h = Object.assign({}, db, { name, incarnation, securityCopy: () => db.security(), watch: f.watch.bind(f), changes: f.changes.bind(f), readDocIds: async (_u: unknown, b: never) => readDocIds(b) }) as unknown as DatabaseHandle
      handles.set(name, { h, f })
    },
    delete: async (name: string) => { handles.get(name)?.f.emit({ type: 'gone' }); handles.delete(name); await catalog.delete(name) },
    setLimits: () => {}, close: async () => {},
  } as unknown as Databases
  const app = await buildApp({ config, credentials: new CredentialChecker(adminAccounts(config)), databases, logger, version: '0.0.1', tmpDir: dataDir })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  t.teardown(() => { app.server.closeAllConnections(); return app.close() })
  return { url, handles, app }
}
