import { advise } from '../advice.ts'
import { isAnswer, isJson, type Reply } from '../client.ts'
import { type Cure, type Finding, fine, toYou, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'
import { GATEWAY } from './server.ts'

/** A `_local` document that was written, read and deleted, as checkpoints are. */
export interface LocalFacts {
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
      `What was written could not be deleted: ${what}.`,
      toYou(`Delete the document ${id} by hand.`),
    )
  }
  if (!isSame) {
    const what = got === null ? 'nothing' : told(got, quote)
    return wrong('local', `What was written is not what is read: ${what}. Does a proxy keep old answers?`)
  }
  return fine('local', 'May write: a _local document was written, read and deleted.')
}

/** A server says in JSON why it refuses; what refuses otherwise stands before it. */
function curesOf(put: Reply, stage: Scene['stage']): readonly Cure[] {
  if (!isAnswer(put)) return []
  if (!isJson(put)) return advise(GATEWAY.has(put.status) ? 'upstream' : 'writing', stage, 'proxy')
  if (![401, 403].includes(put.status)) return []
  return toYou('Give the account the right to write; a quota or a full disk refuses as well.')
}
