import { type Address, type AddressResult, parseAddress } from '../../../core/address.ts'
import { type Finding, fine, note, toYou, wrong } from '../finding.ts'
import { isLoopback } from './look-up.ts'

/** What is known of the address before anything is sent. */
export interface AddressJudgement {
  /** null: it is so wrong that there is nowhere to look. */
  readonly address: Address | null
  readonly findings: readonly Finding[]
}

/**
 * @param text may hold a password, and is repeated nowhere
 * @param mobile whether phones are to reach it
 */
export function judgeAddress(text: string, mobile: boolean): AddressJudgement {
  const strict = parseAddress(text, { mobile })
  const found = strict.ok ? strict : parseAddress(text)
  const findings = faultsOf(strict)
  if (!found.ok) return { address: null, findings }
  return { address: found.address, findings: strict.ok ? [judgePlain(found.address)] : findings }
}

function faultsOf(result: AddressResult): Finding[] {
  return result.ok ? [] : result.faults.map(({ reason, mend }) => wrong('address', reason, toYou(mend)))
}

function judgePlain({ scheme, host, url, password }: Address): Finding {
  if (scheme === 'https' || isLoopback(host)) return fine('address', url)
  const what = password === undefined ? 'Notes travel' : 'The password and all notes travel'
  return note(
    'address',
    `${url} is http: ${what} readable by everybody on the way, and phones refuse it.`,
    toYou('Put TLS before the server, and write https://.'),
  )
}
