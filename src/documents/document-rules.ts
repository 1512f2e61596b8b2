/** What a database can ask of its documents beyond its security object, as `_users` does (users-database.ts). */
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { DocumentReader } from './document-reader.ts'
import type { IncomingDoc } from './incoming.ts'

export interface DocumentRules {
  /** The documents as the user may see them: what he may not see is not there. */
  reader(user: UserCtx): DocumentReader
  /**
   * Whether the user may write the document; asked early, and in the turn of the act. Pure.
   * @param isLive whether it is there and not deleted, as far as that is known yet
   * @throws what it is refused with
   */
  checkWriter(user: UserCtx, id: string, security: SecurityObject | null, isLive: boolean): void
  /** What is wrong with a document that the user may write. Pure. @throws */
  checkDocument(doc: IncomingDoc): void
  /** What is written for a document that has been found good. @throws unavailable */
  prepare(doc: IncomingDoc): Promise<IncomingDoc>
}
