/** @cloudant/couchbackup 2.11 as far as our tests call it; it has no types of its own. */
declare module '@cloudant/couchbackup' {
  import type { EventEmitter } from 'node:events'
  import type { Readable, Writable } from 'node:stream'

  export interface Options {
    /** Experimental there; both ways must agree on it. */
    attachments?: boolean
    /** Documents in a batch. */
    bufferSize?: number
    mode?: 'full' | 'shallow'
    /** Batches at the same time. */
    parallelism?: number
    /** Milliseconds. */
    requestTimeout?: number
  }

  type Callback = (error: (Error & { code?: number }) | null, result?: { total: number }) => void

  const couchbackup: {
    backup(source: string, target: Writable, options: Options, callback: Callback): EventEmitter
    restore(source: Readable, target: string, options: Options, callback: Callback): EventEmitter
  }
  export default couchbackup
}
