/** What a JSON web token must say: `jwt_auth/required_claims`; protocol.md 11.5. */

export interface RequiredClaim {
  readonly name: string
  /** What it must be; undefined: anything. */
  readonly value?: string
}

const CLAIM = /^([A-Za-z_][\w.-]*)$/
const PAIR = /^\{\s*([A-Za-z_][\w.-]*)\s*,\s*"([^"]*)"\s*\}$/

/**
 * Reads CouchDB's text form, `exp, {iss, "https://id.example"}`.
 * @returns the claims, null when the text is no such list
 */
export function parseClaims(text: string): readonly RequiredClaim[] | null {
  const claims: RequiredClaim[] = []
  for (const item of text.split(/,(?![^{]*\})/)) {
    if (item.trim() === '') continue
    const [, single] = CLAIM.exec(item.trim()) ?? []
    const [, name, value] = PAIR.exec(item.trim()) ?? []
    if (single !== undefined) claims.push({ name: single })
    else if (name !== undefined && value !== undefined) claims.push({ name, value })
    else return null
  }
  return claims
}

/** @returns what is wrong with a value of the key, in words that follow its name; null when nothing is */
export function problemOfClaims(text: string): string | null {
  return parseClaims(text) === null ? 'must be a list like exp, {iss, "https://id.example"}' : null
}
