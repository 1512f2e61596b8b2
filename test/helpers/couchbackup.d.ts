/** The part of @cloudant/couchbackup 2.11 that our tests call. The package has no types. */
declare module '@cloudant/couchbackup' {
  import type { EventEmitter } from 'node:events'
  import type { Readable, Writable } from 'node:stream'

  export interface Options {
    /** Experimental in couchbackup; backup and restore must use the same value. */
    attachments?: boolean
    /** Documents per batch. */
    bufferSize?: number
    mode?: 'full' | 'shallow'
    /** Concurrent batches. */
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
