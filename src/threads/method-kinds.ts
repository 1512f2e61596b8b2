/** How the calls of a database go together on its thread: what takes long, what is waited for, what can wait. */
import { METHODS, type ServedDatabase } from './wire.ts'

type Method = keyof ServedDatabase

const LONG_CALLS: ReadonlySet<Method> = new Set(['revsDiff', 'missingRevs', 'overwritten'])

const SAVES: ReadonlySet<Method> = new Set([
  'put',
  'post',
  'remove',
  'copy',
  'putAttachment',
  'removeAttachment',
])

const SCANS: ReadonlySet<Method> = new Set([
  'changes',
  'allDocs',
  'allDocsQueries',
  'bulkGet',
  'bulkGetMixed',
  'exportLines',
  'view',
  'viewQueries',
  'find',
])

/** Whether a call is about many documents, and so may take longer than a message waits for others. */
export function isLong(method: Method): boolean {
  return METHODS[method] === 'stream' || LONG_CALLS.has(method)
}

/** Whether a call writes one document: a person, or a device that has just changed something, waits for it. */
export function isSave(method: Method): boolean {
  return SAVES.has(method)
}

/** Whether a call reads much, page by page: whoever asks for one page reads on for a while, and lets others go first. */
export function isScan(method: Method): boolean {
  return SCANS.has(method)
}
