/** What a feed is fed from. */
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { ChangesPage, ChangesRequest, ChangesSource } from './page.ts'

/** What a feed needs of a database's handle; threads/databases.ts has the whole. */
export interface FeedDatabase extends Pick<ChangesSource, 'changes'> {
  readonly incarnation: number
  securityCopy(): Promise<SecurityObject | null>
  watch(listener: (event: FeedEvent) => void): () => void
}

export type FeedEvent =
  | { readonly type: 'committed'; readonly updateSeq: number }
  | { readonly type: 'secured'; readonly security: SecurityObject | null }
  | { readonly type: 'compacted' }
  | { readonly type: 'gone' }

/** Why a wait was over; `doubt`: the caller's rights are to be looked at again. */
export type Wake = 'committed' | 'time' | 'doubt' | 'gone' | 'interrupted'

/** One feed's way to its database. */
export interface FeedSource {
  /** A page made for this feed alone: the first, which must show all that was written before it was asked for. */
  page(user: UserCtx, request: ChangesRequest): Promise<ChangesPage>
  /** A page behind another one, which other feeds may share. @param key the same for equal options */
  nextPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage>
  /** Waits for a commit above `seq`, at most `ms` milliseconds. One wait at a time. */
  wait(seq: number, ms: number): Promise<Wake>
  /** Whether rights may have changed since this was last asked. */
  takeDoubt(): boolean
  security(): Promise<SecurityObject | null>
  /** Ends the wait under way and all later ones: the client has gone. */
  interrupt(): void
  leave(): void
}

/** The source of a feed that never waits. */
export function directSource(database: Pick<FeedDatabase, 'changes' | 'securityCopy'>): FeedSource {
  return {
    page: (user, request) => database.changes(user, request),
    nextPage: (user, request) => database.changes(user, request),
    wait: async () => 'interrupted',
    takeDoubt: () => false,
    security: () => database.securityCopy(),
    interrupt() {},
    leave() {},
  }
}

/** Time as feeds see it, so that tests can hold it still. */
export interface Clock {
  /** Milliseconds that only ever grow. */
  now(): number
  /** Calls back once. @returns a function that takes the call back */
  after(ms: number, call: () => void): () => void
}

export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, call) {
    const timer = setTimeout(call, ms)
    return () => clearTimeout(timer)
  },
}
