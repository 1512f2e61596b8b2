import {
  type CompactionRules,
  type CompressionRules,
  DEFAULT_RULES,
  type DocumentPolicy,
  type Limits,
  type Rules,
  type Settings,
  type Space,
  type UsersRules,
} from '../core/types.ts'
import type { UuidRules } from '../core/uuids.ts'
import { BodyFiles } from '../documents/body-files.ts'
import type { HashOptions } from '../documents/password-hashing.ts'
import type { Config } from './config.ts'
import { passwordRules } from './password-rules.ts'

/**
 * @param sealingKey of credentials in `_replicator`; null: there is none, which is the default
 * @returns the current settings for database threads
 */
export function settingsOf(config: Config, sealingKey: string | null = null): Settings {
  return { limits: limitsOf(config), rules: rulesOf(config, sealingKey) }
}

function rulesOf(config: Config, sealingKey: string | null): Rules {
  return {
    policy: documentPolicy(config),
    upgradeCopies: config.integer('settee', 'upgrade_copies_days') > 0,
    hashing: hashingOf(config),
    users: usersRulesOf(config),
    uuids: uuidRulesOf(config),
    compression: compressionRulesOf(config),
    compaction: compactionRulesOf(config),
    massDeletion: {
      percent: config.integer('settee', 'mass_deletion'),
      documents: config.integer('settee', 'mass_deletion_documents'),
    },
    hasQuotas: config.isHosted,
    maxLeaves: maxLeaves(config),
    maxAttachments: config.integer('settee', 'max_attachments'),
    find: {
      defaultLimit: config.integer('mango', 'default_limit'),
      scanRatio: config.integer('mango', 'index_scan_warning_threshold'),
    },
    replicator: {
      sealingKey,
      isForAdminsOnly: config.isHosted && !config.boolean('settee', 'hosted_replication'),
    },
  }
}

/** Without tenants' programs and attachments (docs/hosted.md). */
export const HOSTED_POLICY: DocumentPolicy = { attachments: false, designDocs: false }

/** @returns the kinds of documents that the server takes */
export function documentPolicy({ isHosted }: Pick<Config, 'isHosted'>): DocumentPolicy {
  return isHosted ? HOSTED_POLICY : DEFAULT_RULES.policy
}

const HOSTED_MAX_LEAVES = 1000

function maxLeaves(config: Config): number {
  if (config.get('settee', 'max_leaves')) return config.integer('settee', 'max_leaves')
  return config.isHosted ? HOSTED_MAX_LEAVES : DEFAULT_RULES.maxLeaves
}

/** @returns how new passwords are hashed */
export function hashingOf(config: Config): HashOptions {
  return {
    iterations: config.integer('chttpd_auth', 'iterations'),
    prf: config.get('chttpd_auth', 'pbkdf2_prf') || 'sha256',
  }
}

function usersRulesOf(config: Config): UsersRules {
  const fields = config.get('chttpd_auth', 'public_fields') ?? ''
  return {
    database: config.usersDatabase,
    publicFields: config.boolean('chttpd_auth', 'users_db_public')
      ? fields.split(',').flatMap((field) => field.trim() || [])
      : [],
    securityEditable: config.boolean('couchdb', 'users_db_security_editable'),
    passwordRules: passwordRules(config.get('chttpd_auth', 'password_regexp') ?? ''),
  }
}

function compressionRulesOf(config: Config): CompressionRules {
  const types = config.get('attachments', 'compressible_types') ?? ''
  return {
    level: config.integer('attachments', 'compression_level'),
    types: types.split(',').flatMap((type) => type.trim() || []),
  }
}

/** @returns how new ids are made */
export function uuidRulesOf(config: Config): UuidRules {
  return {
    algorithm: config.get('uuids', 'algorithm') as UuidRules['algorithm'],
    format: config.get('uuids', 'format') as UuidRules['format'],
    utcIdSuffix: config.get('uuids', 'utc_id_suffix') ?? '',
  }
}

/** @returns bytes of a disk that are kept free; null: the default, {@link defaultFloor} (core/types.ts) */
export function freeSpaceFloor(config: Config): number | null {
  return config.get('settee', 'free_space_floor') ? config.integer('settee', 'free_space_floor') : null
}

/**
 * @param space the free space of the disk
 * @param folder an existing one for the files
 * @returns the room for bodies in files, as configured
 */
export function bodyFilesOf(config: Config, space: () => Space, folder: string): BodyFiles {
  return new BodyFiles(space, () => config.integer('settee', 'body_disk_share') / 100, folder)
}

/** Seconds that a node with a store tells load balancers before it stops. */
const DRAIN_S = 3

/** @returns how long `_up` answers 404 before this node stops, in ms */
export function drainMs(config: Config): number {
  if (config.get('settee', 'drain_seconds')) return config.integer('settee', 'drain_seconds') * 1000
  return config.get('settee', 'store') ? DRAIN_S * 1000 : 0
}

const DAY_MS = 24 * 60 * 60 * 1000

function compactionRulesOf(config: Config): CompactionRules {
  return {
    isAutomatic: config.get('settee', 'compaction') !== 'manual',
    keepMs: config.integer('settee', 'keep_days') * DAY_MS,
    keepBytes: config.bytes('settee', 'keep_bytes'),
    share: config.integer('settee', 'compaction_share') / 100,
    bytes: config.integer('settee', 'compaction_bytes'),
    quietMs: config.integer('settee', 'compaction_quiet') * 1000,
  }
}

/** Size limits; Infinity for `infinity` in the configuration. */
function limitsOf(config: Config): Limits {
  return {
    maxDocumentSize: config.bytes('couchdb', 'max_document_size'),
    maxAttachmentSize: config.bytes('couchdb', 'max_attachment_size'),
    maxDocumentIdLength: config.bytes('couchdb', 'max_document_id_length'),
    maxPurgedDocuments: config.integer('purge', 'max_document_id_number'),
    maxPurgedRevisions: config.integer('purge', 'max_revisions_number'),
    maxBulkDocs: config.integer('couchdb', 'max_bulk_docs_count'),
    maxBulkGet: config.integer('couchdb', 'max_bulk_get_count'),
    functionTimeout: config.integer('couchdb', 'os_process_timeout'),
    functionMemory: config.integer('settee', 'function_memory'),
    sandboxMemory: config.get('settee', 'sandbox_memory') ? config.integer('settee', 'sandbox_memory') : null,
    threadHeap: config.get('settee', 'thread_heap') ? config.integer('settee', 'thread_heap') : null,
  }
}

// Addresses to listen on.

/** CouchDB's word for every address of the machine, IPv4 and IPv6. */
const ANY = 'any'

/** @returns `chttpd/bind_address` in the operating system's form */
export function bindAddress(config: Pick<Config, 'get'>): string {
  return addressOf(config.get('chttpd', 'bind_address') || '127.0.0.1')
}

/** @returns the same for TLS: `settee/tls_bind_address`, or else {@link bindAddress} */
export function secureBindAddress(config: Pick<Config, 'get'>): string {
  const own = config.get('settee', 'tls_bind_address')
  return own ? addressOf(own) : bindAddress(config)
}

function addressOf(text: string): string {
  return text === ANY ? '::' : text
}
