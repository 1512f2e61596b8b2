import { LIVESYNC_VERSION_ID, MOBILE_DESIGN_ID, MOBILE_FILTER } from '../vaults/livesync.ts'
import { advise } from './advice.ts'
import { type Client, databasePath, isAnswer, isJson, type Reply } from './doctor-client.ts'
import type { Scene } from './examination.ts'
import { type Cure, type Finding, fine, note, skipped, told, toYou, wrong } from './finding.ts'
import { GATEWAY } from './server-checks.ts'

/** Answers to LiveSync's two searches: for chunks below and above the ids that chunks have. */
interface FindFacts {
  readonly below: Reply
  readonly above: Reply
}

/**
 * Judges whether LiveSync gets as far as to sync an encrypted vault: where a search fails it does not begin.
 * @param facts null: the vault is another app's
 * @param isEmpty whether nobody has used the vault yet, so that it may become another app's
 */
export function judgeFind(facts: FindFacts | null, isEmpty: boolean, { stage, quote }: Scene): Finding {
  if (facts === null) return skipped('find', 'Only LiveSync uses it, and this vault belongs to another app.')
  const failed = [facts.below, facts.above].find((reply) => !isFound(reply))
  if (failed === undefined) return fine('find', 'LiveSync can search for chunks, as it does at each start.')
  const text = `LiveSync cannot start to sync an encrypted vault: POST _find fails (${told(failed, quote)}).`
  return (isEmpty ? note : wrong)('find', text, curesOf(failed, stage))
}

function isFound(reply: Reply): boolean {
  if (!isAnswer(reply) || reply.status !== 200) return false
  return Array.isArray((reply.json as { readonly docs?: unknown } | undefined)?.docs)
}

/** A server says in JSON why it refuses; what refuses otherwise stands before it. */
function curesOf(reply: Reply, stage: Scene['stage']): readonly Cure[] {
  if (!isAnswer(reply)) return advise('cut', stage, 'proxy')
  if (reply.status === 504 || reply.status === 524) return advise('cut', stage, 'proxy')
  if (GATEWAY.has(reply.status)) return advise('upstream', stage, 'proxy')
  if (!isJson(reply))
    return toYou('Look for a rule about _find or POST in the proxy or firewall in front of the server.')
  return toYou('Update the server: CouchDB before 2.0 and older versions of settee have no _find.')
}

/** What the function does with documents of which the doctor knows what should become of them. */
export type Trial =
  | { readonly failure: string }
  /** Ids that should pass and do not, and that should not and do. */
  | { readonly lost: readonly string[]; readonly passed: readonly string[] }

export interface MobileFacts {
  /** To `GET /{db}/_design/mobile`. */
  readonly document: Reply
  /** null: there is no function. */
  readonly trial: Trial | null
  /** To `_changes?filter=mobile/sync`: whether this server runs it. */
  readonly changes: Reply
}

/** Between single quotes in a shell. */
const FILTER = JSON.stringify({ filters: { sync: MOBILE_FILTER.replaceAll("'", '"') } })

/**
 * Judges `_design/mobile`, by which Inkdrop and apps like it leave pictures out on phones.
 * @param facts null: the vault is LiveSync's
 * @param isInkdrop whether it holds notes of such an app; else the document may be missing
 */
export function judgeMobile(facts: MobileFacts | null, isInkdrop: boolean, scene: Scene): Finding {
  if (facts === null)
    return skipped('mobile', 'Only Inkdrop uses _design/mobile, and this vault belongs to LiveSync.')
  const { document, trial, changes } = facts
  const { address, quote } = scene
  const make = cureOf(document, `${address.url}/${MOBILE_DESIGN_ID}`)
  if (isHosted(changes))
    return fine('mobile', 'This server runs no functions (hosted mode): apps use _selector instead.')
  if (isAnswer(document) && document.status === 404 && !isInkdrop)
    return skipped('mobile', 'Only Inkdrop uses _design/mobile, and this vault has none of its notes.')
  if (isAnswer(document) && document.status === 404)
    return wrong('mobile', 'There is no _design/mobile: phones cannot leave out pictures.', make)
  if (!isAnswer(document) || document.status !== 200)
    return wrong('mobile', `_design/mobile cannot be read: ${told(document, quote)}.`)
  if (trial === null) return wrong('mobile', '_design/mobile has no filters.sync.', make)
  if ('failure' in trial)
    return wrong('mobile', `filters.sync of _design/mobile fails: ${quote(trial.failure)}.`, make)
  if (trial.lost.length > 0)
    return wrong('mobile', `filters.sync of _design/mobile leaves out ${trial.lost.join(', ')}.`, make)
  if (trial.passed.length > 0)
    return wrong(
      'mobile',
      `filters.sync of _design/mobile does not leave out ${trial.passed.join(', ')}.`,
      make,
    )
  if (!isAnswer(changes) || changes.status !== 200)
    return wrong('mobile', `The server does not run mobile/sync: ${told(changes, quote)}.`)
  return fine('mobile', '_design/mobile leaves out file: documents, and only these.')
}

/** What is there is replaced where it is nothing but the filter; else it is told what to put in. */
function cureOf(document: Reply, url: string): readonly Cure[] {
  const found = isAnswer(document) && document.status === 200 ? document.json : undefined
  const { _id, _rev: rev, language, filters, ...others } = (found ?? {}) as Readonly<Record<string, unknown>>
  const { sync, ...otherFilters } = (filters ?? {}) as Readonly<Record<string, unknown>>
  const put = (query: string) => toYou(`curl -X PUT '${url}${query}' -u ADMIN -d '${FILTER}'`)
  if (isAnswer(document) && document.status === 404) return put('')
  const isAlone = Object.keys(others).length + Object.keys(otherFilters).length === 0
  if (isAlone && typeof rev === 'string' && REVISION.test(rev)) return put(`?rev=${rev}`)
  return toYou(`Set filters.sync of ${url} to: ${MOBILE_FILTER}`)
}

/** A word in a shell's line, whoever has sent it. */
const REVISION = /^\d+-[0-9a-z]{1,64}$/i

/** A server of tenants refuses all functions, whether they are there or not. */
function isHosted(changes: Reply): boolean {
  if (!isAnswer(changes) || changes.status !== 403) return false
  return /hosted|runs no functions?/i.test(changes.text)
}

// Whose vault it is, and what its app asks of it alone. Nothing is written.

/** `empty`: no app has stored anything yet; `other`: it cannot be told. */
type VaultApp = 'livesync' | 'inkdrop' | 'empty' | 'other'

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
