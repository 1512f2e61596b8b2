import type { Limits, Rules, Settings } from '../core/types.ts'
import type { Config } from './config.ts'

/** @returns what database threads are told of the configuration as it is now */
export function settingsOf(config: Config): Settings {
  return { limits: limitsOf(config), rules: rulesOf(config) }
}

function rulesOf(config: Config): Rules {
  return {
    isHosted: config.isHosted,
    hashing: {
      iterations: config.integer('chttpd_auth', 'iterations'),
      prf: config.get('chttpd_auth', 'pbkdf2_prf') || 'sha256',
    },
  }
}

/** How large things may be; Infinity where the configuration says `infinity`. */
function limitsOf(config: Config): Limits {
  return {
    maxDocumentSize: config.bytes('couchdb', 'max_document_size'),
    maxAttachmentSize: config.bytes('couchdb', 'max_attachment_size'),
    maxDocumentIdLength: config.bytes('couchdb', 'max_document_id_length'),
    maxPurgedDocuments: config.integer('purge', 'max_document_id_number'),
    maxPurgedRevisions: config.integer('purge', 'max_revisions_number'),
    functionTimeout: config.integer('couchdb', 'os_process_timeout'),
    functionMemory: config.integer('settee', 'function_memory'),
    maxViewBytes: config.integer('settee', 'view_memory'),
  }
}
