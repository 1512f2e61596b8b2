/** Counts a replication with a database of this server like requests of its user, where the policy limits those. */
import { isServerAdmin } from '../auth/accounts.ts'
import type { Policy, WriteKind } from '../auth/policy.ts'
import type { UserCtx } from '../core/types.ts'
import { PeerError } from './peer-error.ts'

type LimitingPolicy = Pick<Policy, 'limits' | 'write' | 'allowance'>

/** A replication comes from no address. */
const NO_ADDRESS = '127.0.0.1'

export class LocalTurns {
  readonly #policy: LimitingPolicy
  readonly #database: string
  readonly #user: UserCtx

  constructor(policy: LimitingPolicy, database: string, user: UserCtx) {
    this.#policy = policy
    this.#database = database
    this.#user = user
  }

  /** Runs a call in the user's turn. @throws PeerError if too many wait; as `work` */
  async call<T>(work: (user: UserCtx) => Promise<T>): Promise<T> {
    const leave = await this.enter()
    try {
      return await work(this.#user)
    } finally {
      leave()
    }
  }

  /**
   * Runs a write in the turn of the database's owner, with what may still be stored.
   * @param length of its body, in bytes
   * @throws as {@link call}
   */
  write<T>(length: number, kind: WriteKind, work: (user: UserCtx) => Promise<T>): Promise<T> {
    return this.call((user) => {
      if (isServerAdmin(user)) return work(user)
      return this.#policy.write(this.#database, length, kind, async () => {
        const allowance = await this.#policy.allowance(this.#database)
        return work(allowance === undefined ? user : { ...user, allowance })
      })
    })
  }

  /** Waits for the user's turn. @returns what ends it @throws PeerError if too many wait */
  async enter(): Promise<() => void> {
    const { limits } = this.#policy
    if (limits === null || isServerAdmin(this.#user)) return () => {}
    const { limiter, rate } = await limits.limiterOf(this.#user.name, NO_ADDRESS)
    return new Promise((resolve, reject) => {
      const limited = {
        hasPriority: false,
        start: () => resolve(() => limiter.leave()),
        refuse: (seconds: number | null) => {
          const retryAfterMs = seconds === null ? null : seconds * 1000
          reject(
            new PeerError('too_many_requests', 'too many requests of the account wait', { retryAfterMs }),
          )
        },
      }
      limiter.enter(limited, rate)
    })
  }
}
