import { CouchError, type ErrorName } from '../core/errors.ts'

const FAULTS: ReadonlySet<ErrorName> = new Set(['damaged_file', 'disk_fault', 'internal_server_error'])

/** Whether an engine says of a database that it cannot be read: by its file's fault, the disk's, or one it has no word for. */
export function isFileFault(error: unknown): error is CouchError {
  return error instanceof CouchError && FAULTS.has(error.code)
}
