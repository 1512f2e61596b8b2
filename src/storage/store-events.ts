/** What a store tells of its database, and how long it keeps blobs for those who use them; see engine.ts. */
import type { SecurityObject } from '../core/types.ts'

/**
 * A change of a database, by this opener (a process or thread with its own store of the database) or, where
 * `capabilities.sharedWriters` is true, by another. The change can be read when the event comes. An own change is told
 * at once, another's within {@link FOREIGN_EVENT_MS}. Several changes of others may be one event, and `updateSeq` grows from
 * event to event.
 */
export type StoreEvent =
  /** Commits that used sequence numbers. */
  | {
      readonly type: 'committed'
      /** The newest number. */
      readonly updateSeq: number
      /** Its epoch. */
      readonly epoch: string
      /** How many numbers this opener used; 0 for commits of others. */
      readonly updates: number
    }
  /** Another opener has changed settings. */
  | { readonly type: 'settings'; readonly security: SecurityObject | null }
  /** Another opener has deleted or replaced the database. It is the last event; every later call rejects with no_database. */
  | { readonly type: 'deleted' }

/**
 * How late a change by another opener may be told, in ms. An engine that is notified sooner must not rely on it alone, since
 * a notification can be lost: it also asks, this often.
 */
export const FOREIGN_EVENT_MS = 1000
