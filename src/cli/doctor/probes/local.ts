/** Documents that are written and deleted again; nothing else of the doctor's is ever stored. */
import { type Client, databasePath, isAnswer, type Reply } from '../client.ts'
import type { LocalFacts } from '../findings/local.ts'
import type { PathFacts } from '../findings/paths.ts'

/** @param name of letters, digits and dashes, that no other document has */
export async function tryLocal(client: Client, name: string): Promise<LocalFacts> {
  const id = `_local/${name}`
  const path = `${databasePath(client.address)}/${id}`
  const put = await client.ask({ method: 'PUT', path, body: JSON.stringify({ by: name }) })
  const isWritten = mayBeWritten(put)
  const got = isWritten ? await client.ask({ method: 'GET', path }) : null
  const isSame = got !== null && isAnswer(got) && (got.json as { by?: unknown } | undefined)?.by === name
  const removed = isWritten ? await remove(client, path, put) : null
  return { id, put, got, isSame, removed }
}

/** The same with an id that is encoded in a path. */
export async function tryEncoded(client: Client, name: string): Promise<PathFacts> {
  const rest = `${name}/+=`
  const path = `${databasePath(client.address)}/_local/${encodeURIComponent(rest)}`
  const put = await client.ask({ method: 'PUT', path, body: '{}' })
  if (mayBeWritten(put)) await remove(client, path, put)
  return { id: `_local/${rest}`, put }
}

/** Also where the answer was lost on its way. */
function mayBeWritten(put: Reply): boolean {
  return !isAnswer(put) || put.status < 300 || put.status >= 500
}

/** Tried again where no answer came; some servers want the revision. */
async function remove(client: Client, path: string, put: Reply): Promise<Reply> {
  const known = isAnswer(put) ? (put.json as { rev?: unknown } | undefined)?.rev : undefined
  const first = await removeOnce(client, path, known)
  if (isAnswer(first) && first.status < 500 && first.status !== 409) return first
  const read = await client.ask({ method: 'GET', path })
  if (isAnswer(read) && read.status === 404) return isAnswer(first) ? first : read
  const rev = isAnswer(read) ? (read.json as { _rev?: unknown } | undefined)?._rev : known
  return removeOnce(client, path, rev)
}

function removeOnce(client: Client, path: string, rev: unknown): Promise<Reply> {
  const query = typeof rev === 'string' ? `?rev=${encodeURIComponent(rev)}` : ''
  return client.ask({ method: 'DELETE', path: `${path}${query}` })
}
