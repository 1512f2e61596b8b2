/** What authentication asks of device tokens: secrets that stand where a password would. */

export interface TokenGrant {
  readonly id: string
  /** Whether the account's role `_admin` comes with it; every other role does. */
  readonly isAdmin: boolean
}

export interface TokenSource {
  /** Whether the text has the form of a token's secret: then no password is looked for. */
  looksLike(password: string): boolean
  /** @returns null when the secret is of no token of this account; whether the account still exists is not asked */
  check(name: string, password: string): TokenGrant | null
}
