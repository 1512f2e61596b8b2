import { CouchError } from '../core/errors.ts'
import type { TokenLimits } from './token-limits.ts'
import type { TokenTable } from './token-table.ts'

/**
 * Whether an account may have one more token, of this name.
 * @param table all tokens there are
 * @throws bad_request for a bad name; conflict when the account has one of this name; forbidden at a limit
 */
export function checkNewToken(table: TokenTable, limits: TokenLimits, account: string, name: string): void {
  const { total, perAccount, nameLength } = limits
  checkName(name, nameLength)
  const own = table.of(account)
  if (own.some((token) => token.name === name)) {
    throw new CouchError('conflict', 'The account has a token of this name already.')
  }
  if (own.length >= perAccount) {
    throw new CouchError(
      'forbidden',
      `The account has ${own.length} tokens, as many as it may have (settee/tokens_per_account); revoke one first.`,
    )
  }
  if (table.size >= total) {
    throw new CouchError('forbidden', 'The server has as many tokens as it may have (settee/max_tokens).')
  }
}

function checkName(name: string, maxLength: number): void {
  if (name.trim() === '') throw new CouchError('bad_request', 'The name of a token must not be empty.')
  if (name !== name.trim() || /\p{Cc}/u.test(name) || !name.isWellFormed()) {
    throw new CouchError(
      'bad_request',
      'The name of a token must be text without control characters and without white space around it.',
    )
  }
  if (name.length > maxLength) {
    throw new CouchError(
      'bad_request',
      `The name of a token may have ${maxLength} characters (settee/token_name_length).`,
    )
  }
}
