/** What the answers of a source may take of this server before a database has accepted them. */
import { isServerAdmin } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import type { UserCtx } from '../core/types.ts'
import { BodyCollector, type MemoryShare } from '../documents/body-collector.ts'
import type { BodyFiles } from '../documents/body-files.ts'

/** Bytes of one answer that stay in memory. */
const MAX_IN_MEMORY = 256 * 1024
/** Members of a document that its size does not count, in bytes: revisions, stubs of attachments. */
const OVERHEAD = 1024 * 1024

interface IntakeOptions {
  readonly config: Config
  readonly files: BodyFiles
  /** Who replicates. */
  readonly user: UserCtx
  /** Whether a document of any size is taken, since it is from a database of this server. */
  readonly isLocal?: boolean
  /** What may still be stored at the target; absent: any amount. */
  allowance?(): Promise<UserCtx['allowance']>
}

/** The bounds are those of clients: `couchdb/max_document_size`, `chttpd/max_http_request_size`, the room for bodies in files. */
export class Intake {
  readonly #options: IntakeOptions

  constructor(options: IntakeOptions) {
    this.#options = options
  }

  /** The most bytes of a document's JSON without the contents of attachments. */
  get maxDocument(): number {
    const { config, isLocal = false } = this.#options
    return isLocal ? Number.POSITIVE_INFINITY : config.bytes('couchdb', 'max_document_size') + OVERHEAD
  }

  /** The most bytes of one revision with its attachments. */
  get maxRevision(): number {
    return this.#options.config.bytes('chttpd', 'max_http_request_size')
  }

  /** @returns an empty collector, which its caller closes in the end; its refusals are CouchErrors */
  async collector(): Promise<BodyCollector> {
    const { files, user } = this.#options
    const allowance = isServerAdmin(user) ? undefined : await this.#options.allowance?.()
    const writer = allowance === undefined ? user : { ...user, allowance }
    const room = files.allocation(`replications of ${user.name ?? 'the server'}`, writer)
    return new BodyCollector(new SmallMemory(), files.folder, room)
  }
}

/** The memory of one answer, which is not shared. */
class SmallMemory implements MemoryShare {
  #used = 0

  reserve(bytes: number): boolean {
    if (this.#used + bytes > MAX_IN_MEMORY) return false
    this.#used += bytes
    return true
  }

  release(bytes: number): void {
    this.#used -= bytes
  }
}
