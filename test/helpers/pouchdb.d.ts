/**
 * The part of PouchDB 9 that our tests call. `@types/pouchdb` declares a global Buffer that contradicts Node's own, so
 * other code does not compile with it.
 */
declare namespace PouchDB {
  interface Doc {
    _id: string
    _rev?: string
    _deleted?: boolean
    _conflicts?: string[]
    _deleted_conflicts?: string[]
    _revisions?: { start: number; ids: string[] }
    _revs_info?: { rev: string; status: string }[]
    _attachments?: Record<string, Attachment>
    [member: string]: unknown
  }

  interface StoredDoc extends Doc {
    _rev: string
  }

  interface Attachment {
    content_type?: string
    data?: string | Buffer
    digest?: string
    length?: number
    revpos?: number
    stub?: boolean
  }

  interface Saved {
    ok: boolean
    id: string
    rev: string
  }

  interface Failure extends Error {
    status?: number
    name: string
    error?: boolean | string
    reason?: string
    id?: string
    docId?: string
  }

  type BulkRow = Saved | Failure

  interface Info {
    db_name: string
    doc_count: number
    update_seq: number | string
  }

  interface Change {
    id: string
    seq: number | string
    changes: { rev: string }[]
    deleted?: boolean
    doc?: StoredDoc
  }

  interface AllDocs {
    total_rows: number
    offset: number
    rows: {
      id: string
      key: string
      value: { rev: string; deleted?: boolean }
      doc?: StoredDoc
      error?: string
    }[]
  }

  interface ReplicationResult {
    ok: boolean
    status?: string
    docs_read: number
    docs_written: number
    doc_write_failures: number
    errors: Failure[]
    last_seq: number | string
    start_time: string
    end_time: string
  }

  interface SyncResult {
    push?: ReplicationResult
    pull?: ReplicationResult
  }

  type Options = Record<string, unknown>

  interface Running<Result> extends Promise<Result>, NodeJS.EventEmitter {
    cancel(): void
    on(event: string, listener: (...args: never[]) => void): this
    once(event: string, listener: (...args: never[]) => void): this
  }

  interface Replicate {
    to(target: string | Database, options?: Options): Running<ReplicationResult>
    from(source: string | Database, options?: Options): Running<ReplicationResult>
  }

  interface Database<_Content extends object = Doc> extends NodeJS.EventEmitter {
    readonly name: string
    readonly adapter: string
    readonly replicate: Replicate
    info(): Promise<Info>
    id(): Promise<string>
    get(id: string, options?: Options): Promise<StoredDoc>
    put(doc: Doc, options?: Options): Promise<Saved>
    post(doc: Omit<Doc, '_id'>, options?: Options): Promise<Saved>
    remove(id: string | StoredDoc | { _id: string; _rev: string }, rev?: string): Promise<Saved>
    bulkDocs(docs: Doc[], options?: Options): Promise<BulkRow[]>
    bulkGet(options: Options): Promise<{ results: { id: string; docs: Options[] }[] }>
    allDocs(options?: Options): Promise<AllDocs>
    changes(options?: Options): Running<{ results: Change[]; last_seq: number | string }>
    revsDiff(revs: Record<string, string[]>): Promise<Record<string, { missing: string[] }>>
    putAttachment(id: string, name: string, rev: string, data: Buffer | string, type: string): Promise<Saved>
    getAttachment(id: string, name: string, options?: Options): Promise<Buffer>
    removeAttachment(id: string, name: string, rev: string): Promise<Saved>
    sync(other: string | Database, options?: Options): Running<SyncResult>
    compact(options?: Options): Promise<unknown>
    /** This and the four below are those of pouchdb-find. */
    createIndex(definition: object): Promise<{ result: string }>
    getIndexes(): Promise<{ total_rows: number; indexes: object[] }>
    deleteIndex(index: object): Promise<{ ok: boolean }>
    find(query: object): Promise<{ docs: object[] }>
    explain(query: object): Promise<object>
    close(): Promise<void>
    destroy(): Promise<unknown>
  }

  namespace Core {
    type Options = PouchDB.Options
  }

  namespace Configuration {
    type RemoteDatabaseConfiguration = Options
  }

  interface Static {
    new <Content extends object = Doc>(name: string, options?: Options): Database<Content>
    plugin(plugin: unknown): Static
    defaults(options: Options): Static
    fetch(url: string, options?: Options): Promise<Response>
    replicate(
      source: string | Database,
      target: string | Database,
      options?: Options,
    ): Running<ReplicationResult>
    sync(source: string | Database, target: string | Database, options?: Options): Running<SyncResult>
    readonly version: string
  }
}

declare module 'pouchdb' {
  const pouchdb: PouchDB.Static
  export default pouchdb
}

declare module 'pouchdb-find' {
  const plugin: unknown
  export default plugin
}

declare module 'pouchdb-adapter-memory' {
  const plugin: unknown
  export default plugin
}
