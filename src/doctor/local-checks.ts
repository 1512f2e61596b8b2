import { advise } from './advice.ts'
import { type Answer, type Client, databasePath, isAnswer, isJson, type Reply } from './doctor-client.ts'
import type { Scene } from './examination.ts'
import { type Cure, type Finding, fine, note, told, toYou, wrong } from './finding.ts'
import { GATEWAY } from './server-checks.ts'

/** A `_local` document that was written, read and deleted, as checkpoints are. */
interface LocalFacts {
  readonly id: string
  readonly put: Reply
  /** null: there was nothing to read. */
  readonly got: Reply | null
  /** Whether what was read is what was written. */
  readonly isSame: boolean
  readonly removed: Reply | null
}

export function judgeLocal({ id, put, got, isSame, removed }: LocalFacts, { stage, quote }: Scene): Finding {
  if (!isAnswer(put) || put.status >= 300) {
    return wrong('local', `Nothing can be written: ${told(put, quote)}.`, curesOf(put, stage))
  }
  if (removed === null || !isAnswer(removed) || removed.status >= 300) {
    const what = removed === null ? 'no answer' : told(removed, quote)
    return wrong(
      'local',
      `The document that was written could not be deleted: ${what}.`,
      toYou(`Delete the document ${id} by hand.`),
    )
  }
  if (!isSame) {
    const what = got === null ? 'nothing' : told(got, quote)
    return wrong(
      'local',
      `The document that is read is not the one that was written: ${what}. Does a proxy cache answers?`,
    )
  }
  return fine('local', 'The account can write: a _local document was written, read and deleted.')
}

/** A server says in JSON why it refuses; what refuses otherwise stands before it. */
function curesOf(put: Reply, stage: Scene['stage']): readonly Cure[] {
  if (!isAnswer(put)) return []
  if (!isJson(put)) return advise(GATEWAY.has(put.status) ? 'upstream' : 'writing', stage, 'proxy')
  if (![401, 403].includes(put.status)) return []
  return toYou('Give the account the right to write; a quota or a full disk can be the cause too.')
}

/** A `_local` document whose id has characters that are encoded in a path. */
interface PathFacts {
  /** As it is meant. */
  readonly id: string
  readonly put: Reply
}

/** Judges whether ids arrive as they were sent: one with a slash, if it is decoded on the way, names another thing. */
export function judgePaths({ id, put }: PathFacts, { stage, quote }: Scene): Finding {
  const { id: got } = (isAnswer(put) ? (put.json ?? {}) : {}) as { readonly id?: unknown }
  if (isAnswer(put) && put.status < 300 && got === id) {
    return fine('paths', 'Ids with / + = arrive unchanged.')
  }
  const what = typeof got === 'string' ? `it became ${quote(got)}` : told(put, quote)
  return wrong(
    'paths',
    `An id with %2F, %2B or %3D does not arrive unchanged: ${what}. Notes in folders fail.`,
    advise('paths', stage, 'proxy'),
  )
}

/** LiveSync's web tokens hold for five minutes. */
const MOST_S = 300
const MUCH_S = 60

/** Judges the server's clock by the `Date` of an answer. */
export function judgeClock({ headers, at }: Pick<Answer, 'headers' | 'at'>): Finding {
  const time = Date.parse(headers.date ?? '')
  if (Number.isNaN(time)) return note('clock', 'The answer has no Date header: the clock cannot be checked.')
  // A Date has whole seconds: half of one is lost on the average.
  const ahead = Math.round((time + 500 - at) / 1000)
  const off = Math.abs(ahead)
  if (off <= MUCH_S)
    return fine('clock', off <= 1 ? "The same as this machine's." : `${off} s off this machine's.`)
  const text = `The server's clock is ${off} s ${ahead > 0 ? 'ahead of' : 'behind'} this machine's`
  const cure = toYou('Set both clocks: timedatectl set-ntp true')
  if (off <= MOST_S) return note('clock', `${text}.`, cure)
  return wrong('clock', `${text}: web tokens and sessions fail, and certificates may.`, cure)
}

// Documents that are written and deleted again; nothing else of the doctor's is ever stored.

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
