import { USERS_DATABASE } from './ids.ts'
import { DEFAULT_UUID_RULES, type UuidRules } from './uuids.ts'

/** Who is asking. `name` null is anonymous; the role `_admin` is the server admin (protocol.md 11.1). */
export interface UserCtx {
  readonly name: string | null
  readonly roles: readonly string[]
  /** In hosted mode, with calls that may write: what the database's owner may still store. Absent: any amount. */
  readonly allowance?: Allowance
}

/** What an account may store in all of its databases together; its use as far as the HTTP thread knows it. */
export interface Allowance {
  /** `here` is what the database that is written to took when it was last looked at, `others` what all others take. */
  readonly bytes: { readonly limit: number; readonly others: number; readonly here: number }
  /** Live documents; how many are here, the database knows best. */
  readonly documents: { readonly limit: number; readonly others: number }
  /** Bytes of JSON in one document. */
  readonly maxDocumentSize: number
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

/** How large things may be: bytes where nothing else is said; protocol.md 2.5. Infinity where the configuration says `infinity`. */
export interface Limits {
  readonly maxDocumentSize: number
  readonly maxAttachmentSize: number
  readonly maxDocumentIdLength: number
  /** Documents, and revisions of them all, that one `_purge` may name. */
  readonly maxPurgedDocuments: number
  readonly maxPurgedRevisions: number
  /** Documents that one `_bulk_docs`, and one `_bulk_get`, may name. */
  readonly maxBulkDocs: number
  readonly maxBulkGet: number
  /** How long one call of a design document's function may take, in ms. */
  readonly functionTimeout: number
  /** Bytes that one such function may take, those of the engine that runs it included. */
  readonly functionMemory: number
  /** What the rows of all views that one thread holds may weigh, in bytes. */
  readonly maxViewBytes: number
  /** Bytes of heap that a thread may take which is started from now on; null: what the machine's memory suggests. */
  readonly threadHeap: number | null
}

/** The kinds of documents that a server takes. Plain data, since it goes to the threads of the databases. */
export interface DocumentPolicy {
  /** Whether documents may have attachments. */
  readonly attachments: boolean
  /** Whether users may write design documents, and their functions run. */
  readonly designDocs: boolean
}

const ALLOW_ALL: DocumentPolicy = { attachments: true, designDocs: true }

/** What the configuration says of documents beside how large they may be. */
export interface Rules {
  /** Stays as it was when the server started. */
  readonly policy: DocumentPolicy
  /** Whether a file is copied before a newer settee changes its schema. */
  readonly upgradeCopies: boolean
  /** How new passwords in `_users` are hashed; `prf` is CouchDB's name of the digest. */
  readonly hashing: { readonly iterations: number; readonly prf: string }
  readonly users: UsersRules
  /** Which attachments are stored as gzip. */
  readonly compression: CompressionRules
  /** How documents that come without an id get one. */
  readonly uuids: UuidRules
  /** From when on deletions within a minute are told of: documents, and of a hundred live ones; 0: never. */
  readonly massDeletion: { readonly percent: number; readonly documents: number }
  readonly compaction: CompactionRules
  /** Leaves that a document may have, deleted ones too. */
  readonly maxLeaves: number
  /** Attachments that a document may have. */
  readonly maxAttachments: number
  readonly find: FindRules
}

/** Section `[mango]`. */
export interface FindRules {
  /** Documents in one answer of `_find` where the request does not say. */
  readonly defaultLimit: number
  /** Documents that are looked at for one that is found, above which an answer warns; 0: none does. */
  readonly scanRatio: number
}

/** Section `[attachments]`. */
export interface CompressionRules {
  /** From 1, the fastest, to 9; 0: none is compressed. */
  readonly level: number
  /** Media types; a `*` stands for any characters. */
  readonly types: readonly string[]
}

/** When databases are compacted by themselves, and what compactions keep. */
export interface CompactionRules {
  readonly isAutomatic: boolean
  /** How long superseded bodies are kept for the time machine, in ms; 0: not at all. */
  readonly keepMs: number
  /** Bytes of them that are kept in one database at the most. */
  readonly keepBytes: number
  /** How much of a file, from 0 to 1, and how many bytes of it, may be of no use before it is compacted. */
  readonly share: number
  readonly bytes: number
  /** How long nothing was written before, in ms. */
  readonly quietMs: number
}

/** A pattern that a new password must match, and what is said of one that does not, if anything. */
export interface PasswordRule {
  readonly pattern: string
  readonly reason: string
}

/** What the configuration says of `_users`; protocol.md 11.7, 12.2. */
export interface UsersRules {
  /** The database of accounts, as it was when the server started. */
  readonly database: string
  /** Members of user documents that whoever may read the database may see; empty: none. */
  readonly publicFields: readonly string[]
  /** Whether its security object can be changed. */
  readonly securityEditable: boolean
  /** null: the configuration's list is none, so that no password is taken. */
  readonly passwordRules: readonly PasswordRule[] | null
}

/** What a database's thread must know of the configuration. */
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
  maxLeaves: 5000,
  maxAttachments: 1000,
  find: { defaultLimit: 25, scanRatio: 10 },
  compaction: {
    isAutomatic: true,
    keepMs: 30 * 24 * 60 * 60 * 1000,
    keepBytes: 1_073_741_824,
    share: 0.2,
    bytes: 67_108_864,
    quietMs: 10_000,
  },
}

/** The limits of CouchDB 3.5, but for the id, which CouchDB leaves unbounded. */
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
  maxViewBytes: 67_108_864,
  threadHeap: null,
}

export const DEFAULT_SETTINGS: Settings = { limits: DEFAULT_LIMITS, rules: DEFAULT_RULES }

/** One thing that is looked at when somebody asks how the server is. Further members are plain data. */
export interface HealthFact {
  readonly name: string
  readonly ok: boolean
  /** What is wrong, in a sentence that whoever may ask can read. */
  readonly reason?: string
  readonly [more: string]: unknown
}

/** The free space on the disk of the data folder, in bytes (docs/operating.md, Full disks). */
export interface Space {
  readonly free: number
  /** Reserved for deletions, checkpoints of clients and compaction. */
  readonly floor: number
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
