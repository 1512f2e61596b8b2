import { advise } from '../advice.ts'
import { isAnswer, type Reply } from '../client.ts'
import { type Finding, fine, note, skipped } from '../finding.ts'
import type { Scene } from '../scene.ts'

/** Judges whether the server knows the address by which it is reached: the `Location` of what was written says it. */
export function judgeLocation(put: Reply, { address, stage, quote }: Scene): Finding {
  const location = isAnswer(put) ? put.headers.location : undefined
  if (location === undefined) return skipped('location', 'The server names no Location.')
  const found = URL.canParse(location) ? new URL(location).origin : null
  if (found === null || found === new URL(address.url).origin) {
    return fine('location', 'The server knows its address.')
  }
  return note(
    'location',
    `The server takes ${quote(found)} for its address: cookies may not be Secure, and it may not see who asks.`,
    advise('forwarded', stage),
  )
}
