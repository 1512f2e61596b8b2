/** What the threads say to each other about user functions. */
import type { MessagePort } from 'node:worker_threads'
import type { Seat } from './board.ts'
import type { Outcome, Piece } from './work.ts'

/** What a sandbox thread starts with. */
export interface SandboxThreadOptions {
  readonly board: SharedArrayBuffer
  readonly seat: Seat
}

/** From the main thread to a sandbox thread: a database thread's port. */
export interface Introduction {
  readonly client: number
  readonly port: MessagePort
}

/** From a database thread, which has claimed the sandbox thread. */
export interface RunRequest {
  readonly job: number
  readonly piece: Piece
  /** The design document, if the thread said that it does not know the function. */
  readonly source: string | null
}

/** The answer; the sandbox thread is free again. */
export interface RunReply {
  readonly job: number
  readonly outcome: Outcome
}

/** What a database thread starts with. */
export interface SandboxAccess {
  readonly board: SharedArrayBuffer
  /** The database thread's number among those that run functions, from 1. */
  readonly client: number
}

/** From the main thread to a database thread. */
export type SandboxNotice =
  | { readonly type: 'thread'; readonly seat: Seat; readonly port: MessagePort }
  /** A thread is gone: a call took too long and would not be stopped, it died, or it was not needed. */
  | { readonly type: 'lost'; readonly seat: Seat; readonly reason: 'timeout' | 'died' | 'ended' }
  /** No thread could be started. */
  | { readonly type: 'failed'; readonly cause: string }
