import type { Address } from '../../core/address.ts'
import type { Quote } from './quote.ts'
import type { Stage } from './stage.ts'

/** What a finding needs to know beside its own facts. */
export interface Scene {
  readonly address: Address
  /** With the demands of phones. */
  readonly mobile: boolean
  readonly stage: Stage
  readonly quote: Quote
}
