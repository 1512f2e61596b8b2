/** The methods of a database, for the threads at both ends of a call. */
import type { ServedDatabase, StreamMethod } from './thread-protocol.ts'

/** The properties of a method. The compiler reports a method without a row. */
interface Method<M extends keyof ServedDatabase> {
  /** The kind of answer: `call` is one answer, `text` one answer with short bytes as texts, `stream` many chunks. */
  readonly kind: M extends StreamMethod ? 'stream' : 'call' | 'text'
  /**
   * Who may call the method in `_users` (protocol.md 11.4). `own rules`: the method checks its caller itself
   * (documents/users-database.ts), or shows nothing about users.
   */
  readonly users: 'own rules' | 'admins' | 'server admins'
  /**
   * `save`: writes one document, while a person or a device waits.
   * `scan`: reads many documents page by page, after other calls.
   * `long`: handles many documents without a pause.
   */
  readonly cost?: 'save' | 'scan' | 'long'
}

export const METHODS: { readonly [M in keyof ServedDatabase]: Method<M> } = {
  info: { kind: 'call', users: 'own rules' },
  partitionInfo: { kind: 'call', users: 'server admins', cost: 'scan' },
  checkPartition: { kind: 'call', users: 'own rules' },
  size: { kind: 'call', users: 'own rules' },
  conflicts: { kind: 'call', users: 'admins', cost: 'long' },
  brokenFunctions: { kind: 'call', users: 'server admins', cost: 'scan' },
  security: { kind: 'call', users: 'own rules' },
  countDisallowed: { kind: 'call', users: 'own rules' },
  damagedLeaves: { kind: 'call', users: 'own rules' },
  rememberTokens: { kind: 'call', users: 'own rules' },
  exportLines: { kind: 'stream', users: 'server admins', cost: 'scan' },
  setSecurity: { kind: 'call', users: 'own rules' },
  revsLimit: { kind: 'call', users: 'own rules' },
  setRevsLimit: { kind: 'call', users: 'admins' },
  copyLocals: { kind: 'call', users: 'server admins', cost: 'long' },
  compact: { kind: 'call', users: 'own rules' },
  purge: { kind: 'call', users: 'server admins' },
  giveUp: { kind: 'call', users: 'server admins', cost: 'long' },
  purgedInfos: { kind: 'call', users: 'admins' },
  purgedInfosLimit: { kind: 'call', users: 'server admins' },
  setPurgedInfosLimit: { kind: 'call', users: 'server admins' },
  history: { kind: 'call', users: 'admins' },
  overwritten: { kind: 'call', users: 'admins', cost: 'long' },
  version: { kind: 'stream', users: 'admins' },
  rewind: { kind: 'stream', users: 'admins' },
  open: { kind: 'text', users: 'own rules' },
  openRevs: { kind: 'stream', users: 'own rules' },
  openParts: { kind: 'call', users: 'own rules' },
  openRevsMixed: { kind: 'stream', users: 'own rules' },
  put: { kind: 'call', users: 'own rules', cost: 'save' },
  post: { kind: 'call', users: 'own rules', cost: 'save' },
  postForm: { kind: 'call', users: 'own rules' },
  remove: { kind: 'call', users: 'own rules', cost: 'save' },
  copy: { kind: 'call', users: 'own rules', cost: 'save' },
  bulkDocs: { kind: 'stream', users: 'own rules' },
  bulkGet: { kind: 'stream', users: 'own rules', cost: 'scan' },
  bulkGetMixed: { kind: 'stream', users: 'own rules', cost: 'scan' },
  revsDiff: { kind: 'text', users: 'admins', cost: 'long' },
  missingRevs: { kind: 'text', users: 'admins', cost: 'long' },
  allDocs: { kind: 'stream', users: 'server admins', cost: 'scan' },
  allDocsQueries: { kind: 'stream', users: 'server admins', cost: 'scan' },
  openAttachment: { kind: 'call', users: 'own rules' },
  // Reads only attachments that openAttachment has found.
  readAttachment: { kind: 'stream', users: 'own rules' },
  putAttachment: { kind: 'call', users: 'own rules', cost: 'save' },
  removeAttachment: { kind: 'call', users: 'own rules', cost: 'save' },
  view: { kind: 'stream', users: 'admins', cost: 'scan' },
  viewQueries: { kind: 'stream', users: 'admins', cost: 'scan' },
  viewInfo: { kind: 'call', users: 'admins' },
  compactViews: { kind: 'call', users: 'admins' },
  cleanUpViews: { kind: 'call', users: 'admins' },
  show: { kind: 'call', users: 'admins' },
  update: { kind: 'call', users: 'admins', cost: 'save' },
  list: { kind: 'stream', users: 'admins', cost: 'scan' },
  rewrite: { kind: 'call', users: 'admins' },
  find: { kind: 'stream', users: 'server admins', cost: 'scan' },
  explain: { kind: 'call', users: 'server admins' },
  indexes: { kind: 'call', users: 'admins' },
  indexReport: { kind: 'call', users: 'admins' },
  discardIndex: { kind: 'call', users: 'server admins' },
  createIndex: { kind: 'call', users: 'admins' },
  deleteIndex: { kind: 'call', users: 'admins' },
  deleteIndexes: { kind: 'call', users: 'admins' },
  indexUsage: { kind: 'call', users: 'own rules' },
  changes: { kind: 'call', users: 'server admins', cost: 'scan' },
  readFilterBody: { kind: 'call', users: 'own rules' },
}

/** Whether a call may take so long that finished answers must not wait for it. */
export function isLong(method: keyof ServedDatabase): boolean {
  const { kind, cost } = METHODS[method]
  return kind === 'stream' || cost === 'long'
}
