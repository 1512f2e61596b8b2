import { USERS_DATABASE } from './ids.ts'
import { DEFAULT_UUID_RULES, type UuidRules } from './uuids.ts'

/** The caller. `name` null is anonymous; the role `_admin` is the server admin (protocol.md 11.1). */
export interface UserCtx {
  readonly name: string | null
  readonly roles: readonly string[]
  /** In hosted mode, with calls that may write: what the owner of the database may still store. Absent: no limit. */
  readonly allowance?: Allowance
  /**
   * The server stores what another server has accepted, as it is: validate functions do not run, since they may depend on
   * the user who wrote. Never set for a request.
   */
  readonly isCopying?: true
}

/**
 * A server admin without a name: the server itself, the operator at the command line, and everybody while no admin is
 * configured ("admin party"; protocol.md 11.1).
 */
export const SYSTEM_USER: UserCtx = { name: null, roles: ['_admin'] }

/** What an account may store in all of its databases together, and its usage as the HTTP thread knows it. */
export interface Allowance {
  /** `here` is the last known size of the database of the write, `others` that of all others together. */
  readonly bytes: { readonly limit: number; readonly others: number; readonly here: number }
  /** Live documents. The database itself knows its own number. */
  readonly documents: { readonly limit: number; readonly others: number }
  /** Indexes of `_index`. The database itself knows its own number. */
  readonly indexes: { readonly limit: number; readonly others: number }
  /** Bytes of JSON in one document. */
  readonly maxDocumentSize: number
}

/** One list of a security object: users by name and by role. */
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

/** Maximum sizes, in bytes unless stated otherwise (protocol.md 2.5). The configured value `infinity` is Infinity. */
export interface Limits {
  readonly maxDocumentSize: number
  readonly maxAttachmentSize: number
  readonly maxDocumentIdLength: number
  /** Documents in one `_purge`, and revisions of all of them together. */
  readonly maxPurgedDocuments: number
  readonly maxPurgedRevisions: number
  /** Documents in one `_bulk_docs`, and in one `_bulk_get`. */
  readonly maxBulkDocs: number
  readonly maxBulkGet: number
  /** The time limit of one call of a design document's function, in ms. */
  readonly functionTimeout: number
  /** Bytes that one such function may use, including those of its JavaScript engine. */
  readonly functionMemory: number
  /** Bytes that the threads of such functions may take together; null: depends on the machine's memory. */
  readonly sandboxMemory: number | null
  /** Maximum heap of threads that start from now on, in bytes; null: depends on the machine's memory. */
  readonly threadHeap: number | null
}

/** The kinds of documents that a server accepts. Plain data, since it is sent to the database threads. */
export interface DocumentPolicy {
  /** Whether documents may have attachments. */
  readonly attachments: boolean
  /** Whether users may write design documents, and functions of design documents run. */
  readonly designDocs: boolean
}

const ALLOW_ALL: DocumentPolicy = { attachments: true, designDocs: true }

/** The configuration of documents, apart from {@link Limits}. */
export interface Rules {
  /** Fixed when the server starts. */
  readonly policy: DocumentPolicy
  /** Whether a file is copied before its schema is upgraded. */
  readonly upgradeCopies: boolean
  /** How new passwords in `_users` are hashed; `prf` is CouchDB's name of the digest. */
  readonly hashing: { readonly iterations: number; readonly prf: string }
  readonly users: UsersRules
  /** Which attachments are stored as gzip. */
  readonly compression: CompressionRules
  /** How the ids of documents without one are made. */
  readonly uuids: UuidRules
  /** Deletions within a minute that raise an alarm: percent of live documents, and their number; 0: no alarm. */
  readonly massDeletion: { readonly percent: number; readonly documents: number }
  readonly compaction: CompactionRules
  /** Whether databases have owners with quotas: then their indexes ask before they grow. */
  readonly hasQuotas: boolean
  /** Leaves that a document may have, deleted ones included. */
  readonly maxLeaves: number
  /** Attachments that a document may have. */
  readonly maxAttachments: number
  readonly find: FindRules
  readonly replicator: ReplicatorRules
}

/** The configuration of `_replicator` and others of its kind. */
export interface ReplicatorRules {
  /** Encrypts credentials (replication/requests/sealed-credentials.ts); null: there is no key, so none are accepted. */
  readonly sealingKey: string | null
  /** Whether only server admins write replications. */
  readonly isForAdminsOnly: boolean
}

/** Section `[mango]`. */
export interface FindRules {
  /** Documents in one answer of `_find` if the request names no limit. */
  readonly defaultLimit: number
  /** Documents read for each one found, above which an answer has a warning; 0: no warnings. */
  readonly scanRatio: number
}

/** Section `[attachments]`. */
export interface CompressionRules {
  /** From 1, the fastest, to 9; 0: no compression. */
  readonly level: number
  /** Media types; `*` matches any characters. */
  readonly types: readonly string[]
}

/** When databases are compacted automatically, and what compactions keep. */
export interface CompactionRules {
  readonly isAutomatic: boolean
  /** How long superseded bodies are kept for the time machine, in ms; 0: not at all. */
  readonly keepMs: number
  /** The most bytes of superseded bodies that one database keeps. */
  readonly keepBytes: number
  /** The unused part of a file, from 0 to 1 and in bytes, above which it is compacted. */
  readonly share: number
  readonly bytes: number
  /** The time without writes before a compaction starts, in ms. */
  readonly quietMs: number
}

/** A pattern that a new password must match, and the reason for refusing one that does not; it may be empty. */
export interface PasswordRule {
  readonly pattern: string
  readonly reason: string
}

/** The configuration of `_users`; protocol.md 11.7, 12.2. */
export interface UsersRules {
  /** The name of the database of accounts, fixed when the server starts. */
  readonly database: string
  /** Members of user documents that everyone with read access may see. */
  readonly publicFields: readonly string[]
  /** Whether its security object can be changed. */
  readonly securityEditable: boolean
  /** null: the configured list is not valid, so every new password is refused. */
  readonly passwordRules: readonly PasswordRule[] | null
}

/** The configuration that a database thread needs. */
export interface Settings {
  readonly limits: Limits
  readonly rules: Rules
}

export const DEFAULT_RULES: Rules = {
  policy: ALLOW_ALL,
  upgradeCopies: true,
  hashing: { iterations: 600_000, prf: 'sha256' },
  users: { database: USERS_DATABASE, publicFields: [], securityEditable: false, passwordRules: [] },
  compression: { level: 0, types: [] },
  uuids: DEFAULT_UUID_RULES,
  massDeletion: { percent: 50, documents: 20 },
  hasQuotas: false,
  maxLeaves: 5000,
  maxAttachments: 1000,
  find: { defaultLimit: 25, scanRatio: 10 },
  replicator: { sealingKey: null, isForAdminsOnly: false },
  compaction: {
    isAutomatic: true,
    keepMs: 30 * 24 * 60 * 60 * 1000,
    keepBytes: 1_073_741_824,
    share: 0.2,
    bytes: 67_108_864,
    quietMs: 10_000,
  },
}

/** The limits of CouchDB 3.5, except that CouchDB does not limit the id. */
export const DEFAULT_LIMITS: Limits = {
  maxDocumentSize: 8_000_000,
  maxAttachmentSize: 1_073_741_824,
  maxDocumentIdLength: 8_000,
  maxPurgedDocuments: 100,
  maxPurgedRevisions: 1_000,
  maxBulkDocs: 10_000,
  maxBulkGet: 10_000,
  functionTimeout: 5_000,
  functionMemory: 67_108_864,
  sandboxMemory: null,
  threadHeap: null,
}

export const DEFAULT_SETTINGS: Settings = { limits: DEFAULT_LIMITS, rules: DEFAULT_RULES }

/** The result of one health check. Further members are plain data. */
export interface HealthFact {
  readonly name: string
  readonly ok: boolean
  /** What is wrong, in a sentence for users. */
  readonly reason?: string
  readonly [more: string]: unknown
}

/** The free space on the disk of the data folder, in bytes (docs/operating.md, Full disks). */
export interface Space {
  readonly free: number
  /** Reserved for deletions, checkpoints of clients and compaction. */
  readonly floor: number
  /** What frees space, for server admins; absent: not known yet. */
  readonly advice?: string
}

/** For a server without a watch of the disk. */
export const AMPLE_SPACE: Space = { free: Infinity, floor: 0 }

/** The default of the floor: bytes, and a part of the disk. */
const LEAST_FLOOR = 64 * 1024 * 1024
const FLOOR_PART = 0.02

/** @returns the default of the reserved space of a disk, in bytes: 64 MB or 2 % of it, whichever is larger */
export function defaultFloor(total: number): number {
  return Math.max(LEAST_FLOOR, Math.floor(total * FLOOR_PART))
}

/** Whether writes that would grow a database are refused. */
export function isShort({ free, floor }: Space): boolean {
  return free < floor
}
