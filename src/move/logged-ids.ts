/**
 * The ids of `_local` documents in the request log of a server that cannot list them. PouchDB's server and CouchDB 1 serve
 * their logs, in which devices have left the ids of their checkpoints.
 */
import type { RemoteServer } from '../replication/remote/remote-server.ts'

/** By the names of databases. */
export type LoggedIds = ReadonlyMap<string, ReadonlySet<string>>

/** How much of the end of the log is read, in bytes. */
const LOG_BYTES = 64 * 1024 * 1024
const MAX_IDS = 50_000
/** The most characters of one line, and of a name or an id in it. */
const MAX_LINE = 16 * 1024
const MAX_NAME = 512
/** What apps keep in `_local` documents, whether it is in the log or not (clients.md 1.2). */
const APP_IDS = ['obsidian_livesync_sync_parameters', 'obsydian_livesync_milestone'] as const

const REQUEST = /\b(?:GET|PUT) \/(?:[^\s?]*\/)?([^\s/?]+)\/_local\/([^\s/?]+)/

/** @returns empty if the log cannot be read */
export async function loggedIds(old: RemoteServer, signal: AbortSignal): Promise<LoggedIds> {
  const found = new Map<string, Set<string>>()
  let count = 0
  try {
    for await (const line of linesOf(old.log(LOG_BYTES, signal))) {
      const [, database, id] = REQUEST.exec(line) ?? []
      if (database === undefined || id === undefined) continue
      if (database.length > MAX_NAME || id.length > MAX_NAME) continue
      const [name, local] = [unescaped(database), unescaped(id)]
      const ids = found.get(name) ?? new Set<string>()
      if (ids.has(local)) continue
      found.set(name, ids.add(local))
      count += 1
      if (count >= MAX_IDS) break
    }
  } catch {
    // PouchDB's server announces one byte less than it sends.
    signal.throwIfAborted()
  }
  return found
}

/** The ids that are worth asking for. */
export function localIdsToTry(logged: LoggedIds, database: string): readonly string[] {
  return [...new Set([...APP_IDS, ...(logged.get(database) ?? [])])]
}

async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  let bytes = 0
  for await (const chunk of chunks) {
    bytes += chunk.length
    // A server may send more than was asked for.
    if (bytes > 2 * LOG_BYTES) return
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = (lines.pop() ?? '').slice(-MAX_LINE)
    yield* lines
  }
  yield rest
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
