/** Detects the app of a vault, and checks what this app needs from the server. Writes nothing. */
import { LIVESYNC_VERSION_ID, MOBILE_DESIGN_ID, MOBILE_FILTER } from '../vaults/livesync.ts'
import { advise, type CheckContext } from './advice.ts'
import { type Client, codeOf, databasePath, isAnswer, isJson, type Reply } from './doctor-client.ts'
import { adviceToUser, type Cure, describe, type Finding, fine, note, skipped, wrong } from './finding.ts'
import { GATEWAY } from './server-checks.ts'

/** The answers to LiveSync's two searches, for chunks below and above the range of chunk ids. */
interface FindFacts {
  readonly below: Reply
  readonly above: Reply
}

/**
 * Checks whether LiveSync can start to sync an encrypted vault: it cannot if one of the searches fails.
 * @param facts null: the vault belongs to another app
 * @param isEmpty whether the vault is unused, so that another app may still use it
 */
export function checkFind(
  facts: FindFacts | null,
  isEmpty: boolean,
  { stack, quote }: CheckContext,
): Finding {
  if (facts === null) return skipped('find', 'Only LiveSync uses it, and this vault belongs to another app.')
  const failed = [facts.below, facts.above].find((reply) => !isFound(reply))
  if (failed === undefined) return fine('find', 'LiveSync can search for chunks, as it does at each start.')
  const text = `LiveSync cannot start to sync an encrypted vault: POST _find fails (${describe(failed, quote)}).`
  return (isEmpty ? note : wrong)('find', text, curesOf(failed, stack))
}

function isFound(reply: Reply): boolean {
  if (!isAnswer(reply) || reply.status !== 200) return false
  return Array.isArray((reply.json as { readonly docs?: unknown } | undefined)?.docs)
}

/** The server's refusals are JSON; any other refusal comes from a proxy. */
function curesOf(reply: Reply, stack: CheckContext['stack']): readonly Cure[] {
  if (!isAnswer(reply)) return advise('cut', stack, 'proxy')
  if (reply.status === 504 || reply.status === 524) return advise('cut', stack, 'proxy')
  if (GATEWAY.has(reply.status)) return advise('upstream', stack, 'proxy')
  if (!isJson(reply))
    return adviceToUser(
      'Look for a rule about _find or POST in the proxy or firewall in front of the server.',
    )
  return adviceToUser('Update the server: CouchDB before 2.0 and older versions of settee have no _find.')
}

/** The filter's results for test documents. */
type FilterTrial =
  | { readonly failure: string }
  /** `lost`: ids that should pass, but do not; `passed`: ids that pass, but should not. */
  | { readonly lost: readonly string[]; readonly passed: readonly string[] }

interface MobileFacts {
  /** Of `GET /{db}/_design/mobile`. */
  readonly document: Reply
  /** null: there is no filter. */
  readonly trial: FilterTrial | null
  /** Of `_changes?filter=mobile/sync`: whether this server runs the filter. */
  readonly changes: Reply
}

/** Without single quotes: the text is quoted by them in a shell command. */
const FILTER = JSON.stringify({ filters: { sync: MOBILE_FILTER.replaceAll("'", '"') } })

/**
 * Checks `_design/mobile`, with which Inkdrop and similar apps leave out pictures on phones.
 * @param facts null: the vault belongs to LiveSync
 * @param isInkdrop whether the vault has notes of such an app; if not, the document may be missing
 */
export function checkMobile(facts: MobileFacts | null, isInkdrop: boolean, context: CheckContext): Finding {
  if (facts === null)
    return skipped('mobile', 'Only Inkdrop uses _design/mobile, and this vault belongs to LiveSync.')
  const { document, trial, changes } = facts
  const { address, quote } = context
  const make = cureOf(document, `${address.url}/${MOBILE_DESIGN_ID}`)
  if (isHosted(changes))
    return fine('mobile', 'This server runs no functions (hosted mode): apps use _selector instead.')
  if (isAnswer(document) && document.status === 404 && !isInkdrop)
    return skipped('mobile', 'Only Inkdrop uses _design/mobile, and this vault has none of its notes.')
  if (isAnswer(document) && document.status === 404)
    return wrong('mobile', 'There is no _design/mobile: phones cannot leave out pictures.', make)
  if (!isAnswer(document) || document.status !== 200)
    return wrong('mobile', `_design/mobile cannot be read: ${describe(document, quote)}.`)
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
    return wrong('mobile', `The server does not run mobile/sync: ${describe(changes, quote)}.`)
  return fine('mobile', '_design/mobile leaves out file: documents, and only these.')
}

/** A document that holds only the filter can be replaced. In any other document, the user has to set the filter. */
function cureOf(document: Reply, url: string): readonly Cure[] {
  const found = isAnswer(document) && document.status === 200 ? document.json : undefined
  const { _id, _rev: rev, language, filters, ...others } = (found ?? {}) as Readonly<Record<string, unknown>>
  const { sync, ...otherFilters } = (filters ?? {}) as Readonly<Record<string, unknown>>
  const put = (query: string) => adviceToUser(`curl -X PUT '${url}${query}' -u ADMIN -d '${FILTER}'`)
  if (isAnswer(document) && document.status === 404) return put('')
  const isAlone = Object.keys(others).length + Object.keys(otherFilters).length === 0
  if (isAlone && typeof rev === 'string' && REVISION.test(rev)) return put(`?rev=${rev}`)
  return adviceToUser(`Set filters.sync of ${url} to: ${MOBILE_FILTER}`)
}

/** The revision comes from the server, and becomes part of a shell command. */
const REVISION = /^\d+-[0-9a-z]{1,64}$/i

/** A hosted server refuses every function, even one that does not exist. */
function isHosted(changes: Reply): boolean {
  if (!isAnswer(changes) || changes.status !== 403) return false
  return /hosted|runs no functions?/i.test(changes.text)
}

/** `empty`: no app has stored anything yet; `other`: unknown. */
type VaultApp = 'livesync' | 'inkdrop' | 'empty' | 'other'

/** Prefixes of the ids of Inkdrop and similar apps. */
const INKDROP_PREFIXES = ['note:', 'book:'] as const

/** Recognises the app of a vault by its documents. */
export async function detectApp(client: Client): Promise<VaultApp> {
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

/** @returns null if the answer is not a list of documents */
function rowsOf(reply: Reply): number | null {
  if (!isAnswer(reply) || reply.status !== 200) return null
  const { rows } = (reply.json ?? {}) as { readonly rows?: unknown }
  return Array.isArray(rows) ? rows.length : null
}

/** Sends LiveSync's searches at each start with encryption: for chunks outside the range of chunk ids. */
export async function searchAsLiveSync(client: Client): Promise<FindFacts> {
  const path = `${databasePath(client.address)}/_find`
  const ask = (id: object) => {
    const selector = { _id: id, type: 'leaf' }
    return client.ask({ method: 'POST', path, body: JSON.stringify({ selector, fields: ['_id'], limit: 1 }) })
  }
  return { below: await ask({ $lt: 'h:' }), above: await ask({ $gt: 'h;' }) }
}

const FILTER_LIMITS = { timeoutMs: 1000, memory: 33_554_432 }
const STACK_BYTES = 262_144

/** Documents of note apps that must pass, including a tombstone, and documents that must be left out. */
const PASS = [{ _id: 'note:1' }, { _id: 'book:1' }, { _id: 'tag:1' }, { _id: 'note:2', _deleted: true }]
const STAY = [{ _id: 'file:1' }, { _id: 'file:2', contentType: 'image/png' }]

/** Reads `_design/mobile`, and runs its filter in settee's sandbox. */
export async function probeMobileFilter(client: Client): Promise<MobileFacts> {
  const path = databasePath(client.address)
  const [document, changes] = await Promise.all([
    client.ask({ method: 'GET', path: `${path}/_design/mobile` }),
    client.ask({ method: 'GET', path: `${path}/_changes?filter=mobile%2Fsync&limit=1` }),
  ])
  return { document, changes, trial: hasFilter(document) ? await tryFilter(document.text) : null }
}

function hasFilter(document: Reply): document is Extract<Reply, { text: string }> {
  if (!isAnswer(document) || document.status !== 200) return false
  const { filters } = (document.json ?? {}) as { readonly filters?: { readonly sync?: unknown } }
  return typeof filters?.sync === 'string'
}

/** @param source the design document's JSON text */
async function tryFilter(source: string): Promise<FilterTrial> {
  const fn = { database: 0, ddoc: '_design/mobile', rev: '', path: ['filters', 'sync'], source }
  try {
    // QuickJS is loaded only with --mobile.
    const { FunctionContext } = await import('../sandbox/function-context.ts')
    const context = await FunctionContext.make(fn, FILTER_LIMITS, STACK_BYTES)
    context.share(JSON.stringify({ query: {}, method: 'GET' }))
    const passes = ({ _id, ...rest }: { readonly _id: string }) =>
      context.call('filter', JSON.stringify({ _id, _rev: '1-0', ...rest })) === 'true'
    const idOf = ({ _id }: { readonly _id: string }) => _id
    return {
      lost: PASS.filter((doc) => !passes(doc)).map(idOf),
      passed: STAY.filter((doc) => passes(doc)).map(idOf),
    }
  } catch (error) {
    const { reason } = error as { readonly reason?: unknown }
    return { failure: typeof reason === 'string' ? reason : codeOf(error) }
  }
}
