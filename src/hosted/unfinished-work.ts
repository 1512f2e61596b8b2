/** Work that is left to do after a crash, by another node, or after somebody has removed files from the data folder. */
import type { Clock } from '../changes/source.ts'
import { readRecord } from '../storage/records.ts'
import type { Databases } from '../threads/databases.ts'
import type { SignUpCounts } from './sign-up-counts.ts'
import type { TenantAccounts } from './tenant-accounts.ts'
import type { TenantDatabases } from './tenant-databases.ts'

/** How often a node looks for it. */
const LOOK_MS = 60_000
/** How far the log of the databases' updates was read; the value is a sequence number. */
const KIND = 'owner_updates'
const KEY = 'since'
/** Updates that one call reads. */
const PAGE = 500

interface UnfinishedWorkOptions {
  readonly databases: Pick<Databases, 'updates' | 'readRecords' | 'writeRecords'>
  readonly tenantDatabases: Pick<TenantDatabases, 'recover' | 'reconcile'>
  readonly accounts: Pick<TenantAccounts, 'resume'>
  readonly signUps: Pick<SignUpCounts, 'sweep'>
  readonly clock: Clock
  onFault(fault: unknown): void
}

export class UnfinishedWork {
  readonly #options: UnfinishedWorkOptions
  #work: Promise<void> = Promise.resolve()
  #cancel: () => void = () => {}
  readonly #end = Promise.withResolvers<null>()
  #isClosed = false

  constructor(options: UnfinishedWorkOptions) {
    this.#options = options
    this.#lookLater()
  }

  /** Does what is left to do now; never rejects. */
  resume(): Promise<void> {
    this.#work = this.#work.then(() => this.#resume()).catch((fault: unknown) => this.#options.onFault(fault))
    return this.#work
  }

  async #resume(): Promise<void> {
    const { accounts, signUps, tenantDatabases } = this.#options
    if (this.#isClosed) return
    await tenantDatabases.recover()
    await signUps.sweep()
    await accounts.resume(() => this.#isClosed)
    await this.#followUpdates()
  }

  /** A database that is gone without its owner's knowledge, since its file was removed by hand, is in the log. */
  async #followUpdates(): Promise<void> {
    const { databases, tenantDatabases } = this.#options
    const stored = await readRecord(databases, KIND, KEY)
    let since = Number(stored ?? 0)
    while (!this.#isClosed) {
      // The first call after a start waits until the whole data folder was looked through, and a stop must not.
      const found = await Promise.race([databases.updates({ since }, PAGE), this.#end.promise])
      if (found === null) return
      const { rows } = found
      await tenantDatabases.reconcile(rows.filter(({ type }) => type === 'deleted').map(({ name }) => name))
      since = rows.at(-1)?.seq ?? since
      if (rows.length < PAGE) break
    }
    if (`${since}` === stored || since === 0) return
    await databases.writeRecords([{ kind: KIND, key: KEY, value: `${since}` }])
  }

  #lookLater(): void {
    this.#cancel = this.#options.clock.after(LOOK_MS, () => {
      void this.resume().then(() => {
        if (!this.#isClosed) this.#lookLater()
      })
    })
  }

  /** Stops looking, and resolves when the work under way has stopped. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#end.resolve(null)
    this.#cancel()
    await this.#work
  }
}
