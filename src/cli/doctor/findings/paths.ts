import { advise } from '../advice.ts'
import { isAnswer, type Reply } from '../client.ts'
import { type Finding, fine, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'

/** A `_local` document whose id has characters that are encoded in a path. */
export interface PathFacts {
  /** As it is meant. */
  readonly id: string
  readonly put: Reply
}

/** Judges whether ids arrive as they were sent: one with a slash, if it is decoded on the way, names another thing. */
export function judgePaths({ id, put }: PathFacts, { stage, quote }: Scene): Finding {
  const { id: got } = (isAnswer(put) ? (put.json ?? {}) : {}) as { readonly id?: unknown }
  if (isAnswer(put) && put.status < 300 && got === id) {
    return fine('paths', 'Ids with / + = arrive as they are sent.')
  }
  const what = typeof got === 'string' ? `it became ${quote(got)}` : told(put, quote)
  return wrong(
    'paths',
    `An id with %2F, %2B or %3D does not arrive: ${what}. Notes in folders fail.`,
    advise('paths', stage, 'proxy'),
  )
}
