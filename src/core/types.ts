/** Who is asking. `name` null is anonymous; the role `_admin` is the server admin (protocol.md 11.1). */
export interface UserCtx {
  readonly name: string | null
  readonly roles: readonly string[]
}

/** One list of a security object: who is meant, by name and by role. */
export interface SecurityList {
  readonly names?: readonly string[]
  readonly roles?: readonly string[]
}

/** A database's security object as it was stored; unknown members are kept (protocol.md 4.8). */
export interface SecurityObject {
  readonly admins?: SecurityList
  readonly members?: SecurityList
  readonly [other: string]: unknown
}

/** How large things may be, in bytes; protocol.md 2.5. Infinity where the configuration says `infinity`. */
export interface Limits {
  readonly maxDocumentSize: number
  readonly maxAttachmentSize: number
  readonly maxDocumentIdLength: number
}

/** The limits of CouchDB 3.5, but for the id, which CouchDB leaves unbounded. */
export const DEFAULT_LIMITS: Limits = {
  maxDocumentSize: 8_000_000,
  maxAttachmentSize: 1_073_741_824,
  maxDocumentIdLength: 8_000,
}
