/**
 * The replications of this server. `POST /_replicate` starts and cancels jobs that last until the server stops, as in
 * CouchDB (protocol.md 14.1, 14.4); documents of `_replicator` have others.
 */

import type { Accounts } from '../auth/accounts.ts'
import { requireServerAdmin } from '../auth/accounts.ts'
import type { Tokens } from '../auth/tokens.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { DocumentReplications, type DocumentReplicationsOptions } from './documents/document-replications.ts'
import type { ReplicationJob } from './jobs/job.ts'
import { type Caller, ownerOfCall, requireReplicationAllowed } from './jobs/job-rights.ts'
import { Jobs } from './jobs/jobs.ts'
import { withRefusals } from './peer-error.ts'
import type { ReplicationResult } from './replication.ts'
import {
  type ReplicationRequest,
  readCancel,
  readReplication,
  replicationDefaults,
} from './requests/replication-request.ts'

export interface ReplicatorOptions extends DocumentReplicationsOptions {
  readonly accounts: Pick<Accounts, 'find' | 'onChange'>
  readonly tokens: Pick<Tokens, 'get' | 'onChange'>
}

/** What became of a request. */
export type ReplicateOutcome =
  | { readonly type: 'done'; readonly result: ReplicationResult }
  | { readonly type: 'started' | 'cancelled'; readonly id: string }

export class Replicator {
  readonly #options: ReplicatorOptions
  readonly documents: DocumentReplications
  readonly #jobs: Jobs
  readonly #stops: readonly (() => void)[]

  constructor(options: ReplicatorOptions) {
    this.#options = options
    this.#jobs = new Jobs(options)
    this.documents = new DocumentReplications(this.#jobs, options)
    const { accounts, tokens, config } = options
    const check = (names: ReadonlySet<string> | 'all') => this.#jobs.checkRights(names)
    this.#stops = [
      ...[accounts, tokens].map((source) => source.onChange(check)),
      config.onChange((section, key) => {
        if (section === 'settee' && key === 'hosted_replication') check('all')
      }),
    ]
  }

  /**
   * Starts or cancels a replication.
   * @param body of `POST /_replicate`
   * @param caller whose rights count in databases of this server
   * @returns for a replication that is not continuous, when it has ended
   * @throws bad_request; forbidden in hosted mode; not_found for an unknown job; what ended the replication
   */
  async replicate(body: unknown, caller: Caller): Promise<ReplicateOutcome> {
    const { user } = caller
    requireReplicationAllowed(this.#options.config, user)
    if (!isJsonObject(body)) throw new CouchError('body_not_object')
    const cancel = readCancel(body)
    if (cancel !== null && cancel.id !== null) return this.#cancel(cancel.id, caller)
    const request = readReplication(body, replicationDefaults(this.#options.config))
    await this.#jobs.peers.load()
    const id = await this.#jobs.peers.idOf(request, user)
    if (cancel !== null) return this.#cancel(id, caller)
    const job = await this.#add(id, request, caller)
    if (request.options.isContinuous) return { type: 'started', id }
    return { type: 'done', result: await withRefusals(() => job.finished) }
  }

  /** The jobs, in the order of their ids. */
  jobs(): readonly ReplicationJob[] {
    return this.#jobs.list()
  }

  /** @throws not_found */
  job(id: string): ReplicationJob {
    const job = this.#jobs.find(id.replaceAll(' ', '+'))
    if (job === undefined) throw new CouchError('not_found')
    return job
  }

  /** Stops all jobs after a last checkpoint. Idempotent. */
  async close(): Promise<void> {
    for (const stop of this.#stops) stop()
    await this.documents.close()
    await this.#jobs.close()
  }

  #cancel(id: string, { user }: Caller): ReplicateOutcome {
    const job = this.job(id)
    if (job.isCancelled) throw new CouchError('not_found')
    if (job.user.name !== user.name) requireServerAdmin(user)
    if (job.document !== null) {
      const { database, id } = job.document
      throw new CouchError(
        'forbidden',
        `The document ${id} in ${database} has started this replication: delete it.`,
      )
    }
    void job.stop('cancel')
    return { type: 'cancelled', id: job.id }
  }

  /** @throws not_server_admin if another user has the same replication; too_many_requests */
  async #add(id: string, request: ReplicationRequest, caller: Caller): Promise<ReplicationJob> {
    const { user } = caller
    const owner = await ownerOfCall(this.#options, caller)
    const most = await this.#jobs.mostOf(user)
    const existing = this.#jobs.find(id)
    if (existing === undefined) return this.#jobs.add({ id, request, owner, document: null }, user, most)
    if (existing.isCancelled && !existing.isOver) {
      await existing.stop('cancel')
      return this.#add(id, request, caller)
    }
    if (existing.user.name !== user.name) requireServerAdmin(user)
    return existing
  }
}
