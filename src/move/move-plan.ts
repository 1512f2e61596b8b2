/** What a move will do: which databases come along, and what cannot. */
import { ANONYMOUS } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { type SecurityObject, SYSTEM_USER } from '../core/types.ts'
import { databaseRole } from '../documents/security.ts'
import type { RemoteDatabase } from '../replication/remote/remote-database.ts'
import type { RemoteServer, RemoteWelcome } from '../replication/remote/remote-server.ts'
import { diskSize } from '../storage/free-space.ts'
import type { Databases } from '../threads/databases.ts'
import { MoveRecords } from './move-records.ts'
import { isShown, type MovedSetting, movedSettings } from './moved-settings.ts'
import { repeated } from './old-server.ts'

export interface MoveRequest {
  /** The address of the old server, with the credentials of a server admin. */
  readonly url: string
  /** Names; null: all databases that can come along. */
  readonly databases: readonly string[] | null
  /** Whether this server keeps its own uuid. */
  readonly keepsUuid: boolean
  /** Whether to add to databases that exist here. */
  readonly isMerged: boolean
}

export interface PlannedDatabase {
  readonly name: string
  /** Its name here. */
  readonly target: string
  readonly documents: number
  readonly deleted: number
  /** Of the file at the old server; null: unknown. */
  readonly bytes: number | null
  /** `new`: it will be made; `continued`: an earlier move has made it; `merged`: it exists here. */
  readonly state: 'new' | 'continued' | 'merged'
  /** What of it cannot come along, or works otherwise here. */
  readonly notes: readonly string[]
}

export interface PlannedSetting {
  readonly section: string
  readonly key: string
  /** null: a secret. */
  readonly value: string | null
  /** Whether the value that is set here stays instead. */
  readonly isKept: boolean
}

export interface MovePlan {
  /** The old server, for people. */
  readonly from: string
  /** Its vendor and version. */
  readonly server: string
  /** null: it has none. */
  readonly uuid: string | null
  /** Whether this server takes the uuid over. */
  readonly takesUuid: boolean
  readonly databases: readonly PlannedDatabase[]
  /** Databases that do not come along, and why. */
  readonly left: readonly { readonly name: string; readonly reason: string }[]
  /** null: the configuration cannot be read. */
  readonly settings: readonly PlannedSetting[] | null
  /** Bytes that are free on the disk of this server; null: its databases are in a store. */
  readonly freeBytes: number | null
}

/** A plan, and what the move needs besides. */
export interface PreparedMove {
  readonly plan: MovePlan
  readonly welcome: RemoteWelcome
  readonly settings: readonly MovedSetting[]
  readonly records: MoveRecords
  /** What identifies the old server. */
  readonly oldServer: string
}

interface PlanServices {
  readonly config: Config
  readonly databases: Databases
  readonly dataDir: string
}

/** The most databases of one move. */
const MAX_DATABASES = 100_000

/** @throws PeerError; CouchError, among them conflict for a database that must not be touched */
export async function prepareMove(
  old: RemoteServer,
  request: MoveRequest,
  services: PlanServices,
  signal: AbortSignal,
): Promise<PreparedMove> {
  // Not repeated: a wrong address is reported at once.
  const welcome = await old.welcome(signal)
  const oldServer = welcome.uuid ?? old.address
  const { chosen, left } = await chooseDatabases(old, request.databases, signal)
  const records = new MoveRecords(services.databases)
  const databases: PlannedDatabase[] = []
  for (const name of chosen) {
    const planned = await planDatabase(
      old.database(name),
      request.isMerged,
      oldServer,
      records,
      services,
      signal,
    )
    databases.push(planned)
  }
  const config = await repeated(signal, () => old.config(signal))
  const settings = config === null ? [] : movedSettings(config)
  const plan = {
    from: old.address,
    server: [welcome.vendor, welcome.version].filter((word) => word !== null).join(' ') || 'unknown',
    uuid: welcome.uuid,
    takesUuid: welcome.uuid !== null && !request.keepsUuid,
    databases,
    left,
    settings: config === null ? null : settings.map((setting) => planSetting(setting, services.config)),
    freeBytes: services.databases.copies === null ? null : (await diskSize(services.dataDir)).free,
  }
  return { plan, welcome, settings, records, oldServer }
}

interface Choice {
  readonly chosen: readonly string[]
  readonly left: MovePlan['left']
}

/** @throws not_found for a name that the old server does not have */
async function chooseDatabases(
  old: RemoteServer,
  wanted: readonly string[] | null,
  signal: AbortSignal,
): Promise<Choice> {
  if (wanted !== null) return { chosen: [...new Set(wanted)], left: [] }
  return repeated(signal, async () => {
    const chosen: string[] = []
    const left: { name: string; reason: string }[] = []
    for await (const name of old.databaseNames(signal)) {
      const reason = reasonToLeave(name)
      if (reason === null) chosen.push(name)
      else left.push({ name, reason })
      if (chosen.length + left.length > MAX_DATABASES) {
        throw new CouchError('bad_request', `The old server has more than ${MAX_DATABASES} databases.`)
      }
    }
    return { chosen, left }
  })
}

/** @returns null if the database comes along */
export function reasonToLeave(name: string): string | null {
  if (name === '_users') return null
  if (name === '_replicator' || name.endsWith('/_replicator')) {
    return 'its replications would run at both servers; move it by name when the old server is off'
  }
  if (name.startsWith('_')) return 'it belongs to the old server itself'
  try {
    checkDatabaseName(name)
    return null
  } catch (error) {
    return (error as Error).message
  }
}

async function planDatabase(
  old: RemoteDatabase,
  isMerged: boolean,
  oldServer: string,
  records: MoveRecords,
  { databases }: PlanServices,
  signal: AbortSignal,
): Promise<PlannedDatabase> {
  const { name } = old
  const target = name === '_users' ? databases.usersDatabase : name
  const info = await repeated(signal, () => old.info(signal))
  const state = await stateOf(target, databases, records, oldServer)
  const isUsers = target === databases.usersDatabase
  if (state === 'merged' && !isMerged && !isUsers) {
    throw new CouchError(
      'conflict',
      `The database ${target} exists here, and has not come from ${old.endpoint.shown}. Add --merge to add to it, ` +
        'or choose others with --db.',
    )
  }
  const { documents, deleted, activeBytes, fileBytes } = info
  const notes = await repeated(signal, () => notesOf(old, signal))
  if (!isUsers) {
    const oldSecurity = await repeated(signal, () => old.security(signal))
    // A database that is there keeps its rights.
    const here = state === 'new' ? null : await (await databases.get(target)).securityCopy()
    notes.push(...accessNotes(target, oldSecurity, here))
  }
  return { name, target, documents, deleted, bytes: activeBytes ?? fileBytes, state, notes }
}

async function stateOf(
  target: string,
  databases: Databases,
  records: MoveRecords,
  oldServer: string,
): Promise<PlannedDatabase['state']> {
  if (!(await databases.has(target))) return 'new'
  const record = await records.read(target)
  if (record !== null) return record.oldServer === oldServer ? 'continued' : 'merged'
  const { doc_count, doc_del_count } = await (await databases.get(target)).info(SYSTEM_USER)
  return doc_count + doc_del_count === 0 ? 'new' : 'merged'
}

async function notesOf(old: RemoteDatabase, signal: AbortSignal): Promise<string[]> {
  const notes: string[] = []
  if ((await old.localDocs(signal)) === null) {
    notes.push(
      'its _local documents cannot be listed; those that its log names come along, and devices of others compare ' +
        'the ids of all documents once',
    )
  }
  for await (const doc of old.designDocs(signal)) {
    const { id, language } = doc
    if (language === 'javascript' || language === 'query' || notes.length >= MAX_NOTES) continue
    notes.push(`${short(id)}: functions in ${short(language)} do not run here`)
  }
  return notes
}

const MAX_NOTES = 20
/** Characters of a name in a note. */
const MAX_NAME = 100

function short(text: string): string {
  return text.length > MAX_NAME ? `${text.slice(0, MAX_NAME)}…` : text
}

/**
 * Whom the database will admit, where that may surprise: a security object without `members` admits everybody in CouchDB,
 * and only admins here ({@link databaseRole}).
 * @param old the old server's security object; null: it has none
 * @param here the security object that stays; null: the old one is copied
 */
function accessNotes(target: string, old: unknown, here: SecurityObject | null): string[] {
  const security = here ?? (isJsonObject(old) ? (old as SecurityObject) : null)
  const isOpenHere = databaseRole(ANONYMOUS, security) !== 'none'
  if (isOpenHere) return ['open to everybody, even without a login']
  if (!isOpenInCouch(old) || hasMembers(security)) return []
  return [
    `the old server admits everybody, since _security has no members; here only admins have access, until ` +
      `PUT /${encodeURIComponent(target)}/_security names members`,
  ]
}

/** Whether a security object names nobody, which opens a database of CouchDB (protocol.md 11.6). */
function isOpenInCouch(security: unknown): boolean {
  return isJsonObject(security) && !hasMembers(security)
}

function hasMembers(security: Readonly<Record<string, unknown>> | SecurityObject | null): boolean {
  const { members = security?.readers } = security ?? {}
  if (!isJsonObject(members)) return false
  return [members.names, members.roles].some((list) => Array.isArray(list) && list.length > 0)
}

function planSetting(setting: MovedSetting, config: Config): PlannedSetting {
  const { section, key, value } = setting
  return {
    section,
    key,
    value: isShown(setting) ? value : null,
    isKept: config.isSet(section, key) && config.get(section, key) !== value,
  }
}
