/** The dependencies of a feed: its database, its source of pages, and a clock. */
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { ChangesPage, ChangesRequest, ChangesSource } from './page.ts'

/** The methods of a database that a feed needs, implemented by threads/databases.ts. */
export interface FeedDatabase extends Pick<ChangesSource, 'changes'> {
  readonly incarnation: number
  securityCopy(): SecurityObject | null | Promise<SecurityObject | null>
  watch(listener: (event: FeedEvent) => void): () => void
}

export type FeedEvent =
  | { readonly type: 'committed'; readonly updateSeq: number }
  | { readonly type: 'secured'; readonly security: SecurityObject | null }
  | { readonly type: 'compacted' }
  | { readonly type: 'closed' }

/** Why a wait ended. `revocation` means that the rights of the caller must be checked again. */
export type Wake = 'committed' | 'time' | 'revocation' | 'gone' | 'interrupted'

/** The access of one feed to its database. */
export interface FeedSource {
  /** A page for only this feed. The first page must not be shared, since it shows all writes before the request. */
  page(user: UserCtx, request: ChangesRequest): Promise<ChangesPage>
  /** A page after the first, which other feeds may share. @param key identical for equal options */
  nextPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage>
  /** Waits up to `ms` milliseconds for a commit after `seq`. Only one wait at a time. */
  wait(seq: number, ms: number): Promise<Wake>
  /** Whether rights may have changed since the last call. */
  takeRevocation(): boolean
  security(): SecurityObject | null | Promise<SecurityObject | null>
  /** Ends the current wait and all later ones, since the client has disconnected. */
  interrupt(): void
  leave(): void
}

/** The source of a feed that never waits. */
export function directSource(database: Pick<FeedDatabase, 'changes' | 'securityCopy'>): FeedSource {
  return {
    page: (user, request) => database.changes(user, request),
    nextPage: (user, request) => database.changes(user, request),
    wait: async () => 'interrupted',
    takeRevocation: () => false,
    security: () => database.securityCopy(),
    interrupt() {},
    leave() {},
  }
}

/** A clock, which tests replace. */
export interface Clock {
  /** Milliseconds; never decreases. */
  now(): number
  /** Calls back once. @returns a function that cancels the call */
  after(ms: number, call: () => void): () => void
}

export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, call) {
    const timer = setTimeout(call, ms)
    return () => clearTimeout(timer)
  },
}
