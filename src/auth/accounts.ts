/** Who may log in: what authentication asks, whoever knows the answer (server admins, `_users`, both together). */

/** An account as it stands now. */
export interface Account {
  readonly name: string
  readonly roles: readonly string[]
  /** The password's hash, in a form that `verifyPassword` knows; null: no password opens the account. */
  readonly stored: string | null
  /** Goes into the key that signs session cookies: with a new password they end. */
  readonly salt: string
  /** Why the account is let in nowhere, though it is there: told to whoever proves to be its owner. Absent: it is. */
  readonly refusal?: string
}

/** Told whose accounts have changed in any way (gone, a new password, other roles); `all` where it is not known. */
export type AccountListener = (names: ReadonlySet<string> | 'all') => void

export interface Accounts {
  /** @returns null when there is no such account. @throws unavailable; account_conflicts, which nobody is locked out for */
  find(name: string): Promise<Account | null>
  /** A hash, as costly as a real one, that no password meets: so that an unknown name takes as long. */
  decoy(): string
  /** @returns what ends the calls */
  onChange(listener: AccountListener): () => void
}
