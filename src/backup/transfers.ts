/**
 * Export and import of a database as a couchbackup file, for the command line. The control socket carries only the
 * request. The file's bytes go over a socket that the command listens on, so that the command reads and writes the file
 * with the rights of its user.
 */
import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setteeVersion } from '../config/version.ts'
import { CouchError } from '../core/errors.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import { type BackupLine, backupLines } from './backup-format.ts'

interface ExportRequest {
  readonly database: string
  /** The path of the socket that takes the file. */
  readonly socket: string
}

export interface ExportOutcome {
  /** The database's counts when the export began. */
  readonly documents: number
  readonly deleted: number
  readonly hasAttachments: boolean
  /** What is damaged in the database, and so not in the file; null: it is complete. */
  readonly gaps: string | null
}

interface ImportRequest {
  readonly database: string
  /** The path of the socket that the file comes from. */
  readonly socket: string
  /** Whether the database may already hold documents. */
  readonly merge: boolean
}

export interface ImportOutcome {
  readonly isNew: boolean
  /** The increase of the database's counts. */
  readonly documents: number
  readonly deleted: number
  /** The number of refused revisions, and the reasons for the first of them. */
  readonly refused: number
  readonly refusals: readonly string[]
}

/** The progress of a transfer. */
export interface TransferProgress {
  readonly bytes: number
}

type OnProgress = (progress: TransferProgress) => void

export interface TransferControl {
  /** @param after the last name of the page before; null: from the first one @returns a page of names, empty at the end */
  listDatabases(request: { readonly after: string | null }): Promise<readonly string[]>
  /** @throws no_database; unavailable when the server stops in the meantime */
  exportDatabase(request: ExportRequest, onProgress?: OnProgress): Promise<ExportOutcome>
  /**
   * Creates a missing database. Existing revisions stay unchanged, so an interrupted import can be repeated.
   * @throws conflict for a database that is not empty, without `merge`; bad_request for another kind of file
   */
  importDatabase(request: ImportRequest, onProgress?: OnProgress): Promise<ImportOutcome>
}

export interface TransferServices {
  readonly databases: Databases
  /** For lines that are too long for memory. */
  readonly tmpDir: string
  /** Ends transfers under way, because the server is stopping. */
  readonly ending: AbortSignal
}

/** Time between two progress reports of a transfer, in ms. */
const PROGRESS_INTERVAL_MS = 500
const MAX_REFUSALS = 10
const NAMES_OF_PAGE = 1000

/** @returns the commands, on the databases that are open in this process */
export function localTransferControl(services: TransferServices): TransferControl {
  return {
    listDatabases: ({ after }) => services.databases.names(after === null ? {} : { after }, NAMES_OF_PAGE),
    exportDatabase: (request, onProgress) => exportDatabase(services, request, onProgress),
    importDatabase: (request, onProgress) => importDatabase(services, request, onProgress),
  }
}

async function exportDatabase(
  { databases, ending }: TransferServices,
  { database, socket }: ExportRequest,
  onProgress: OnProgress = () => undefined,
): Promise<ExportOutcome> {
  const handle = await databases.get(database)
  const [counts, before] = await Promise.all([countsOf(handle), handle.countDisallowed()])
  const hasAttachments = before.attachments > 0
  let gaps: string | null = null
  const note = (reason: string) => {
    gaps = reason
  }
  await overSocket(socket, ending, async (connection) => {
    const file = withProgress(fileOf(handle, hasAttachments, note), onProgress)
    await pipeline(Readable.from(file, { objectMode: false }), connection, { signal: ending })
  })
  return { ...counts, hasAttachments, gaps }
}

/** couchrestore requires its option for attachments exactly if the first line has `attachments`. */
async function* fileOf(
  handle: DatabaseHandle,
  attachments: boolean,
  onGaps: (reason: string) => void,
): AsyncGenerator<Uint8Array> {
  const first = { name: 'settee', version: setteeVersion(), mode: 'full', attachments }
  yield Buffer.from(`${JSON.stringify(first)}\n`)
  try {
    yield* handle.exportLines(SYSTEM_USER)
  } catch (error) {
    // It comes after the last line, so the file is whole.
    if (!(error instanceof CouchError) || error.code !== 'incomplete_export') throw error
    onGaps(error.message)
  }
}

async function importDatabase(
  { databases, tmpDir, ending }: TransferServices,
  { database, socket, merge }: ImportRequest,
  onProgress: OnProgress = () => undefined,
): Promise<ImportOutcome> {
  return overSocket(socket, ending, async (connection) => {
    const lines = backupLines(withProgress(connection, onProgress), tmpDir)
    const first = await lines.next()
    if (first.done) throw new CouchError('bad_request', 'The file is empty.')
    requireBackup(first.value)
    const isNew = await prepareTarget(databases, database, merge)
    const handle = await databases.get(database)
    const before = await countsOf(handle)
    const refusals = new Refusals()
    await importLine(handle, first.value, refusals)
    for await (const line of lines) await importLine(handle, line, refusals)
    const after = await countsOf(handle)
    return {
      isNew,
      documents: after.documents - before.documents,
      deleted: after.deleted - before.deleted,
      refused: refusals.count,
      refusals: refusals.reasons,
    }
  })
}

async function countsOf(handle: DatabaseHandle): Promise<Pick<ExportOutcome, 'documents' | 'deleted'>> {
  const { doc_count, doc_del_count } = await handle.info(SYSTEM_USER)
  return { documents: doc_count, deleted: doc_del_count }
}

/** The first line is a header; before couchbackup 2.10, it already had documents. */
function requireBackup({ head }: BackupLine): void {
  if (isHeader(head) || head.startsWith('[')) return
  throw new CouchError(
    'bad_request',
    'This is not a couchbackup file: its first line is not a couchbackup header.',
  )
}

function isHeader(text: string): boolean {
  const { name, version, mode } = objectOf(text)
  return [name, version, mode].every((member) => typeof member === 'string')
}

function objectOf(text: string): Readonly<Record<string, unknown>> {
  try {
    return (JSON.parse(text) ?? {}) as Record<string, unknown>
  } catch {
    return {}
  }
}

/** @returns whether the database was created */
async function prepareTarget(databases: Databases, database: string, merge: boolean): Promise<boolean> {
  if (!(await databases.has(database))) {
    await databases.create(database)
    return true
  }
  const { documents, deleted } = await countsOf(await databases.get(database))
  if (documents + deleted === 0 || merge) return false
  throw new CouchError(
    'conflict',
    `The database ${database} holds ${documents} documents and ${deleted} deleted documents; ` +
      'nothing was imported. Use --merge to add the revisions that it lacks.',
  )
}

/** couchbackup's marker for a resumed backup. It follows an incomplete line, which couchbackup then repeats. */
const RESUMED = '{"marker":"@cloudant/couchbackup:resume"}'

async function importLine(handle: DatabaseHandle, line: BackupLine, refusals: Refusals): Promise<void> {
  if (line.tail.endsWith(RESUMED)) return
  if (line.number === 1 && isHeader(line.head)) return
  if (!line.head.startsWith('[')) throw importError(line, 'it is not a list of documents')
  let answer = ''
  try {
    for await (const chunk of handle.bulkDocs(SYSTEM_USER, line.body)) answer += Buffer.from(chunk).toString()
  } catch (error) {
    if (error instanceof CouchError && error.status < 500) throw importError(line, error.message, error)
    throw error
  }
  refusals.note(JSON.parse(answer) as Refusal[])
}

function importError({ number }: BackupLine, reason: string, cause?: CouchError): CouchError {
  const what = `Line ${number} cannot be imported (${reason.replace(/\.$/, '')}).`
  const next = 'The lines before it are imported; repeat the import with --merge.'
  return new CouchError('bad_request', `${what} ${next}`, { cause })
}

interface Refusal {
  readonly id: string
  readonly reason: string
}

class Refusals {
  count = 0
  readonly reasons: string[] = []

  note(rows: readonly Refusal[]): void {
    this.count += rows.length
    for (const { id, reason } of rows.slice(0, MAX_REFUSALS - this.reasons.length)) {
      this.reasons.push(`${id}: ${reason}`)
    }
  }
}

/** Connects to the command's socket, and closes it after the work. @throws unavailable when the server is stopping */
async function overSocket<T>(
  path: string,
  ending: AbortSignal,
  work: (connection: Socket) => Promise<T>,
): Promise<T> {
  const connection = createConnection({ path, allowHalfOpen: true })
  const end = () => connection.destroy(new CouchError('unavailable'))
  ending.addEventListener('abort', end)
  try {
    await once(connection, 'connect')
    return await work(connection)
  } catch (error) {
    throw ending.aborted ? new CouchError('unavailable', undefined, { cause: error }) : error
  } finally {
    ending.removeEventListener('abort', end)
    connection.destroy()
  }
}

/** Passes bytes on, and reports their number at intervals. */
async function* withProgress(
  source: AsyncIterable<Uint8Array>,
  onProgress: OnProgress,
): AsyncGenerator<Uint8Array> {
  let bytes = 0
  let next = 0
  for await (const chunk of source) {
    yield chunk
    bytes += chunk.length
    if (performance.now() < next) continue
    next = performance.now() + PROGRESS_INTERVAL_MS
    onProgress({ bytes })
  }
}
