import { advise } from '../advice.ts'
import { isAnswer, isJson, type Reply } from '../client.ts'
import { type Cure, type Finding, fine, note, skipped, toYou, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'
import { GATEWAY } from './server.ts'

/** Answers to LiveSync's two searches: for chunks below and above the ids that chunks have. */
export interface FindFacts {
  readonly below: Reply
  readonly above: Reply
}

/**
 * Judges whether LiveSync gets as far as to sync an encrypted vault: where a search fails it does not begin.
 * @param facts null: the vault is another app's
 * @param isEmpty whether nobody has used the vault yet, so that it may become another app's
 */
export function judgeFind(facts: FindFacts | null, isEmpty: boolean, { stage, quote }: Scene): Finding {
  if (facts === null) return skipped('find', 'LiveSync alone asks for it: this vault is another app’s.')
  const failed = [facts.below, facts.above].find((reply) => !isFound(reply))
  if (failed === undefined) return fine('find', 'LiveSync may search for chunks, as it does at each start.')
  const text = `LiveSync does not begin to sync an encrypted vault: POST _find fails (${told(failed, quote)}).`
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
  if (!isJson(reply)) return toYou('Look for a rule about _find or POST in what stands before the server.')
  return toYou('Update the server: CouchDB before 2.0 and older versions of settee have no _find.')
}
