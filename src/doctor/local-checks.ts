/** Checks whether `_local` documents can be written, as for checkpoints, and whether ids arrive unchanged. */
import { advise, type CheckContext } from './advice.ts'
import { type Client, databasePath, isAnswer, isJson, type Reply } from './doctor-client.ts'
import { adviceToUser, type Cure, describe, type Finding, fine, wrong } from './finding.ts'
import { GATEWAY } from './server-checks.ts'

/** The answers for a `_local` document that was written, read and deleted. */
interface LocalFacts {
  readonly id: string
  readonly put: Reply
  /** null: not tried. */
  readonly got: Reply | null
  /** Whether the document that was read is the one that was written. */
  readonly isSame: boolean
  readonly removed: Reply | null
}

export function checkLocal(
  { id, put, got, isSame, removed }: LocalFacts,
  { stack, quote }: CheckContext,
): Finding {
  if (!isAnswer(put) || put.status >= 300) {
    return wrong('local', `Nothing can be written: ${describe(put, quote)}.`, curesOf(put, stack))
  }
  if (removed === null || !isAnswer(removed) || removed.status >= 300) {
    const what = removed === null ? 'no answer' : describe(removed, quote)
    return wrong(
      'local',
      `The document that was written could not be deleted: ${what}.`,
      adviceToUser(`Delete the document ${id} by hand.`),
    )
  }
  if (!isSame) {
    const what = got === null ? 'nothing' : describe(got, quote)
    return wrong(
      'local',
      `The document that is read is not the one that was written: ${what}. Does a proxy cache answers?`,
    )
  }
  return fine('local', 'The account can write: a _local document was written, read and deleted.')
}

/** The server's refusals are JSON; any other refusal comes from a proxy. */
function curesOf(put: Reply, stack: CheckContext['stack']): readonly Cure[] {
  if (!isAnswer(put)) return []
  if (!isJson(put)) return advise(GATEWAY.has(put.status) ? 'upstream' : 'writing', stack, 'proxy')
  if (![401, 403].includes(put.status)) return []
  return adviceToUser('Give the account the right to write; a quota or a full disk can be the cause too.')
}

/** The answer for a `_local` document whose id must be encoded in the path. */
interface PathFacts {
  /** Not encoded. */
  readonly id: string
  readonly put: Reply
}

/** Checks whether ids arrive unchanged: a proxy that decodes a slash turns the id into another path. */
export function checkPaths({ id, put }: PathFacts, { stack, quote }: CheckContext): Finding {
  const { id: got } = (isAnswer(put) ? (put.json ?? {}) : {}) as { readonly id?: unknown }
  if (isAnswer(put) && put.status < 300 && got === id) {
    return fine('paths', 'Ids with / + = arrive unchanged.')
  }
  const what = typeof got === 'string' ? `it became ${quote(got)}` : describe(put, quote)
  return wrong(
    'paths',
    `An id with %2F, %2B or %3D does not arrive unchanged: ${what}. Notes in folders fail.`,
    advise('paths', stack, 'proxy'),
  )
}

/** @param name a unique id of letters, digits and dashes */
export async function writeLocal(client: Client, name: string): Promise<LocalFacts> {
  const id = `_local/${name}`
  const path = `${databasePath(client.address)}/${id}`
  const put = await client.ask({ method: 'PUT', path, body: JSON.stringify({ by: name }) })
  const isWritten = mayBeWritten(put)
  const got = isWritten ? await client.ask({ method: 'GET', path }) : null
  const isSame = got !== null && isAnswer(got) && (got.json as { by?: unknown } | undefined)?.by === name
  const removed = isWritten ? await remove(client, path, put) : null
  return { id, put, got, isSame, removed }
}

/** As {@link writeLocal}, with an id that must be encoded in the path. */
export async function writeEncodedId(client: Client, name: string): Promise<PathFacts> {
  const rest = `${name}/+=`
  const path = `${databasePath(client.address)}/_local/${encodeURIComponent(rest)}`
  const put = await client.ask({ method: 'PUT', path, body: '{}' })
  if (mayBeWritten(put)) await remove(client, path, put)
  return { id: `_local/${rest}`, put }
}

/** A document may also be written if the answer was lost. */
function mayBeWritten(put: Reply): boolean {
  return !isAnswer(put) || put.status < 300 || put.status >= 500
}

/** Tries again without an answer, or with the revision, which some servers require. */
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
