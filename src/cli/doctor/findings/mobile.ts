import { MOBILE_DESIGN_ID, MOBILE_FILTER } from '../../../core/mobile-filter.ts'
import { isAnswer, type Reply } from '../client.ts'
import { type Cure, type Finding, fine, skipped, toYou, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'

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
    return skipped('mobile', 'Inkdrop alone asks for _design/mobile: this vault is LiveSync’s.')
  const { document, trial, changes } = facts
  const { address, quote } = scene
  const make = cureOf(document, `${address.url}/${MOBILE_DESIGN_ID}`)
  if (isHosted(changes))
    return fine('mobile', 'This server runs no functions (hosted): apps use _selector in their place.')
  if (isAnswer(document) && document.status === 404 && !isInkdrop)
    return skipped('mobile', 'Inkdrop alone asks for _design/mobile: this vault has none of its notes.')
  if (isAnswer(document) && document.status === 404)
    return wrong('mobile', 'There is no _design/mobile: phones cannot leave pictures out.', make)
  if (!isAnswer(document) || document.status !== 200)
    return wrong('mobile', `_design/mobile cannot be read: ${told(document, quote)}.`)
  if (trial === null) return wrong('mobile', '_design/mobile has no filters.sync.', make)
  if ('failure' in trial)
    return wrong('mobile', `filters.sync of _design/mobile fails: ${quote(trial.failure)}.`, make)
  if (trial.lost.length > 0)
    return wrong('mobile', `filters.sync of _design/mobile leaves out ${trial.lost.join(', ')}.`, make)
  if (trial.passed.length > 0)
    return wrong('mobile', `filters.sync of _design/mobile lets ${trial.passed.join(', ')} pass.`, make)
  if (!isAnswer(changes) || changes.status !== 200)
    return wrong('mobile', `The server does not run mobile/sync: ${told(changes, quote)}.`)
  return fine('mobile', '_design/mobile leaves out file: documents and nothing else.')
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
