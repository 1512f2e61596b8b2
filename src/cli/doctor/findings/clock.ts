import type { Answer } from '../client.ts'
import { type Finding, fine, note, toYou, wrong } from '../finding.ts'

/** LiveSync's web tokens hold for five minutes. */
const MOST_S = 300
const MUCH_S = 60

/** Judges the server's clock by the `Date` of an answer. */
export function judgeClock({ headers, at }: Pick<Answer, 'headers' | 'at'>): Finding {
  const time = Date.parse(headers.date ?? '')
  if (Number.isNaN(time)) return note('clock', 'The answer has no Date: the clock cannot be seen.')
  // A Date has whole seconds: half of one is lost on the average.
  const ahead = Math.round((time + 500 - at) / 1000)
  const off = Math.abs(ahead)
  if (off <= MUCH_S) return fine('clock', off <= 1 ? 'The same as here.' : `${off} s from this machine's.`)
  const text = `The server's clock is ${off} s ${ahead > 0 ? 'ahead of' : 'behind'} this machine's`
  const cure = toYou('Set both: timedatectl set-ntp true')
  if (off <= MOST_S) return note('clock', `${text}.`, cure)
  return wrong('clock', `${text}: web tokens and sessions fail, and certificates may.`, cure)
}
