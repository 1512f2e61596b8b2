/** The parts of PouchDB that this app uses. PouchDB has no types of its own. */

export interface Doc {
  readonly _id: string
  readonly _rev?: string
  readonly _deleted?: boolean
  readonly _conflicts?: readonly string[]
  readonly _attachments?: Readonly<Record<string, unknown>>
  readonly [member: string]: unknown
}

export interface StoredDoc extends Doc {
  readonly _rev: string
}

export interface Saved {
  readonly ok: boolean
  readonly id: string
  readonly rev: string
}

/** An error that PouchDB throws or sends in an event. */
export interface PouchError {
  readonly status?: number
  readonly name?: string
  readonly message?: string
  readonly reason?: string
  readonly id?: string
}

export interface Change {
  readonly id: string
  readonly deleted?: boolean
  readonly doc?: StoredDoc
}

/** The result of one batch of a replication. */
export interface Batch {
  readonly docs: readonly Doc[]
}

export interface Running<Events> {
  on<Name extends keyof Events>(event: Name, listener: (value: Events[Name]) => void): this
  cancel(): void
}

export interface FeedEvents {
  change: Change
}

export interface ReplicationEvents {
  change: Batch
  paused: PouchError | undefined
  active: undefined
  denied: PouchError
  /** An attempt has failed, and another one will follow. */
  requestError: PouchError
  error: PouchError
  complete: unknown
}

export type Replication = Running<ReplicationEvents>

export interface ReplicationOptions {
  readonly live: boolean
  readonly retry: boolean
  /** The name of a function of a design document, or a function that runs here. */
  readonly filter?: string | ((doc: Doc) => boolean)
  readonly selector?: object
  /** Documents per request. */
  readonly batch_size?: number
  /** @returns milliseconds until the next try */
  readonly back_off_function: (lastDelay: number) => number
}

export interface PouchOptions {
  /** Does not check whether the database exists, and does not create it. */
  readonly skip_setup?: boolean
  readonly auth?: { readonly username: string; readonly password: string }
  readonly fetch?: typeof fetch
  readonly auto_compaction?: boolean
}

export interface Pouch {
  readonly replicate: {
    to(target: Pouch, options: ReplicationOptions): Replication
    from(source: Pouch, options: ReplicationOptions): Replication
  }
  info(): Promise<{ readonly update_seq: number | string }>
  get(id: string, options?: { readonly rev?: string; readonly conflicts?: boolean }): Promise<StoredDoc>
  put(doc: Doc, options?: { readonly force?: boolean }): Promise<Saved>
  remove(id: string, rev: string): Promise<Saved>
  bulkDocs(docs: readonly Doc[]): Promise<readonly (Saved | PouchError)[]>
  allDocs(options: object): Promise<{ readonly rows: readonly { readonly doc?: StoredDoc }[] }>
  changes(options: object): Running<FeedEvents>
  getAttachment(id: string, name: string): Promise<Blob>
  close(): Promise<void>
}
