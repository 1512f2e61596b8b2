/** Device tokens, as authentication sees them: an account's own passwords for one device each. */
export interface TokenSource {
  /** @returns whether the password has the form of a token, and so is none of an account's */
  looksLike(password: string): boolean
  /** @returns the token, when it is one of the account's that was not revoked; null when it is none */
  check(name: string, password: string): { readonly id: string } | null
}
