import type { Limits } from '../core/types.ts'
import type { Config } from './config.ts'

/** @returns how large things may be now, in bytes; Infinity where the configuration says `infinity` */
export function limitsOf(config: Config): Limits {
  return {
    maxDocumentSize: config.bytes('couchdb', 'max_document_size'),
    maxAttachmentSize: config.bytes('couchdb', 'max_attachment_size'),
    maxDocumentIdLength: config.bytes('couchdb', 'max_document_id_length'),
  }
}
