import type { Config } from '../config/config.ts'

export interface TokenLimits {
  /** Tokens of all accounts together, which are all held in memory. */
  readonly total: number
  readonly perAccount: number
  /** Characters of a name. */
  readonly nameLength: number
}

/** @returns how many device tokens there may be, and how long their names, as the configuration says now */
export function tokenLimitsOf(config: Config): TokenLimits {
  return {
    total: config.integer('settee', 'max_tokens'),
    perAccount: config.integer('settee', 'tokens_per_account'),
    nameLength: config.integer('settee', 'token_name_length'),
  }
}
