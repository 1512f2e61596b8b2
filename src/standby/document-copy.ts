/** Copies documents of one database of the primary, or sends some back to it, by a replication without checkpoints. */
import type { Logger } from 'pino'
import { COPYING_USER } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import { Intake } from '../replication/intake.ts'
import { LocalPeer } from '../replication/local-peer.ts'
import type { RemoteDatabase } from '../replication/remote/remote-database.ts'
import { Replication } from '../replication/replication.ts'
import type { Position, ReplicationOptions } from '../replication/requests/replication-request.ts'
import type { Databases } from '../threads/databases.ts'

export interface DocumentCopyOptions {
  readonly databases: Databases
  readonly config: Config
  /** The room for answers in files. */
  readonly files: BodyFiles
  readonly logger: Logger
  /** Runs a batch when its turn among all databases has come. */
  inTurn<T>(database: string, batch: () => Promise<T>): Promise<T>
}

const OPTIONS: Omit<ReplicationOptions, 'sinceSeq' | 'filter'> = {
  isContinuous: false,
  createsTarget: false,
  createTargetParams: {},
  isWinningRevsOnly: false,
  // The records have the positions.
  usesCheckpoints: false,
  checkpointInterval: 30_000,
  usesBulkGet: true,
  batchSize: 500,
  batches: 4,
  timeout: 30_000,
  retries: 2,
  sourceProxy: undefined,
  targetProxy: undefined,
}

const NOT_STORED = 'the standby could not store a document'
const NOT_SENT = 'a document could not be sent back to the primary'

/** What is copied. */
interface CopiedDocuments {
  readonly since: Position
  /** Only these; undefined: all. */
  readonly docIds?: readonly string[]
  /** From here to the primary. */
  readonly isSentBack?: boolean
}

/** A copy up to the end of the feed. */
export class DocumentCopy {
  readonly #replication: Replication
  #refused = 0

  constructor(
    { databases, config, files, logger, inTurn }: DocumentCopyOptions,
    remote: RemoteDatabase,
    { since, docIds, isSentBack = false }: CopiedDocuments,
    signal: AbortSignal,
  ) {
    const { name, peer } = remote
    const user = COPYING_USER
    const local = new LocalPeer({ databases, name, user, address: name, create: async () => undefined })
    this.#replication = new Replication({
      ...(isSentBack ? { source: local, target: peer } : { source: peer, target: local }),
      options: { ...OPTIONS, sinceSeq: since, filter: docIds === undefined ? {} : { docIds } },
      checkpointId: '_local/standby',
      isSourceReadOnly: true,
      intake: new Intake({ config, files, user, isLocal: isSentBack }),
      signal,
      inTurn: (batch) => inTurn(name, batch),
      onRetry: (error) =>
        logger.warn({ database: name, reason: error.message }, 'a step of a copy failed and is repeated'),
      onRefused: (docId, reason) => {
        this.#refused += 1
        logger.warn({ database: name, docId, reason }, isSentBack ? NOT_SENT : NOT_STORED)
      },
    })
  }

  /** Revisions that could not be stored so far. */
  get refused(): number {
    return this.#refused
  }

  /** Revisions that were stored so far. */
  get written(): number {
    return this.#replication.progress.stats.docs_written
  }

  /** Everything up to here is copied. */
  get reached(): Position {
    return this.#replication.progress.throughSeq
  }

  /** @throws PeerError; what the signal is aborted with */
  async run(): Promise<void> {
    await this.#replication.run()
  }
}
