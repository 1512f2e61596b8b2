/** Databases on real threads and files. */
import { readdirSync, readlinkSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'
import type { Test } from 'tap'
import { DEFAULT_SETTINGS } from '../../src/core/types.ts'
import type {
  DatabaseEvent,
  DatabaseHandle,
  OwnedDatabases,
  ServerDatabasesOptions,
} from '../../src/threads/databases.ts'
import { openServerDatabases } from '../../src/threads/open-databases.ts'
import { ADMIN, body, jsonOf } from '../documents/helpers.ts'
import { temporaryFolder } from '../helpers/server.ts'

export const DEADLY_ENTRY = new URL('./deadly-thread.mjs', import.meta.url)
const ENTRY = new URL('../helpers/database-thread.mjs', import.meta.url)
const SANDBOX_ENTRY = new URL('../helpers/sandbox-thread.mjs', import.meta.url)

export interface Served {
  readonly databases: OwnedDatabases
  readonly dataDir: string
  readonly faults: unknown[]
}

interface ServedOptions extends Partial<Omit<ServerDatabasesOptions, 'location'>> {
  readonly dataDir?: string
}

/** Databases in a folder, by default an empty one. They are closed when the test ends. */
export async function serve(t: Test, options: ServedOptions = {}): Promise<Served> {
  const { dataDir = await temporaryFolder(t), ...others } = options
  const faults: unknown[] = []
  const databases = await openServerDatabases({
    location: { kind: 'files', dataDir },
    settings: DEFAULT_SETTINGS,
    maxOpen: 100,
    threads: 1,
    threadEntry: ENTRY,
    sandboxEntry: SANDBOX_ENTRY,
    onFault: (fault) => faults.push(fault),
    onCompactionFault: (_database, fault) => faults.push(fault),
    ...others,
  })
  t.teardown(() => databases.close())
  return { databases, dataDir, faults }
}

export async function put(handle: DatabaseHandle, id: string, doc: unknown = {}): Promise<string> {
  return (await handle.put(ADMIN, id, body(doc), {})).rev
}

/** The ids of all live documents. */
export async function idsOf(handle: DatabaseHandle): Promise<string[]> {
  const { rows } = await jsonOf(handle.allDocs(ADMIN, 'all', {}, null))
  return rows.map(({ id }: { id: string }) => id)
}

/** The events of a database from now on. */
export function eventsOf(handle: DatabaseHandle): DatabaseEvent[] {
  const events: DatabaseEvent[] = []
  handle.watch((event) => events.push(event))
  return events
}

/** The databases whose files this process has open. */
export function openFiles(dataDir: string): string[] {
  const names = new Set<string>()
  for (const file of readdirSync('/proc/self/fd')) {
    const match = linkOf(file).startsWith(`${dataDir}/databases/`) && /([^/]+)\.sqlite/.exec(linkOf(file))
    if (match) names.add(match[1] as string)
  }
  return [...names].sort()
}

function linkOf(file: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${file}`)
  } catch {
    return '' // closed in the meantime
  }
}

/** Waits, turn by turn, until a condition is met. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await turn()
}
