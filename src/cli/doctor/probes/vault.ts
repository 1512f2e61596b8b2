/** Whose vault it is, and what its app asks of it alone. Nothing is written. */
import { LIVESYNC_VERSION_ID } from '../../../maintenance/livesync-keys.ts'
import { type Client, databasePath, isAnswer, type Reply } from '../client.ts'
import type { FindFacts } from '../findings/find.ts'

/** `empty`: no app has stored anything yet; `other`: it cannot be told. */
export type VaultApp = 'livesync' | 'inkdrop' | 'empty' | 'other'

/** Ids with which all documents of a note app like Inkdrop begin. */
const INKDROP_PREFIXES = ['note:', 'book:'] as const

/** Finds out by its documents which app a vault belongs to. */
export async function lookAtVault(client: Client): Promise<VaultApp> {
  const path = databasePath(client.address)
  const listing = (query: string) => client.ask({ method: 'GET', path: `${path}/_all_docs?limit=1${query}` })
  const [version, all, ...notes] = await Promise.all([
    client.ask({ method: 'GET', path: `${path}/${LIVESYNC_VERSION_ID}` }),
    listing(''),
    ...INKDROP_PREFIXES.map((prefix) => {
      const end = `${prefix.slice(0, -1)};`
      return listing(`&startkey=${inQuery(prefix)}&endkey=${inQuery(end)}`)
    }),
  ])
  if (isAnswer(version) && version.status === 200) return 'livesync'
  if (notes.some((reply) => rowsOf(reply) === 1)) return 'inkdrop'
  return rowsOf(all) === 0 ? 'empty' : 'other'
}

function inQuery(key: string): string {
  return encodeURIComponent(JSON.stringify(key))
}

/** null: what came is no list. */
function rowsOf(reply: Reply): number | null {
  if (!isAnswer(reply) || reply.status !== 200) return null
  const { rows } = (reply.json ?? {}) as { readonly rows?: unknown }
  return Array.isArray(rows) ? rows.length : null
}

/** Asks what LiveSync asks at each start of an encrypted vault: which chunks stand where none should be. */
export async function askAsLiveSync(client: Client): Promise<FindFacts> {
  const path = `${databasePath(client.address)}/_find`
  const ask = (id: object) => {
    const selector = { _id: id, type: 'leaf' }
    return client.ask({ method: 'POST', path, body: JSON.stringify({ selector, fields: ['_id'], limit: 1 }) })
  }
  return { below: await ask({ $lt: 'h:' }), above: await ask({ $gt: 'h;' }) }
}
