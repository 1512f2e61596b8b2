/** What speaks to the tables of one open file, each part knowing those that it needs. */
import { Attachments } from './attachments.ts'
import { Blobs } from './blobs.ts'
import type { Connection } from './connection.ts'
import { Documents } from './documents.ts'
import { FeedCounts } from './feed-counts.ts'
import { Locals } from './locals.ts'
import { Revisions } from './revisions.ts'
import { State } from './state.ts'
import { Superseded } from './superseded.ts'
import { Wear } from './wear.ts'

export type Tables = ReturnType<typeof openTables>

/** @param now the time, in ms since 1970 */
export function openTables(connection: Connection, now: () => number) {
  const state = new State(connection)
  const wear = new Wear(connection)
  const blobs = new Blobs(connection)
  const attachments = new Attachments(connection, blobs)
  const superseded = new Superseded(connection, wear)
  const revisions = new Revisions(connection, { attachments, blobs, superseded, wear })
  const documents = new Documents(connection, revisions, now)
  const feed = new FeedCounts(connection)
  const locals = new Locals(connection)
  return { state, wear, blobs, attachments, superseded, revisions, documents, feed, locals }
}
