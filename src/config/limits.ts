import type { Limits } from '../core/types.ts'
import type { Config } from './config.ts'

/** @returns how large things may be now; Infinity where the configuration says `infinity` */
export function limitsOf(config: Config): Limits {
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
