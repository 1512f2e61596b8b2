/** The sessions that were ended by a logout, as records, which all nodes read and which outlive a restart. */
import { jsonObjectIn } from '../core/json.ts'
import { Listeners } from '../core/listeners.ts'
import { RecordCache } from '../storage/record-cache.ts'
import { RecordSweep } from '../storage/record-sweep.ts'
import type { WatchedRecords } from '../storage/records.ts'
import type { AccountListener } from './accounts.ts'

const KIND = 'ended-session'
/** Sessions of which is remembered whether and when they were ended; 200 bytes each. */
const REMEMBERED = 20_000

interface EndedSession {
  /** Cookies of the session up to this time are ended, in seconds since 1970; -1: it was not ended. */
  readonly until: number
}

/** The value of a record. */
interface End extends EndedSession {
  /** The account. */
  readonly name: string
  /** When all these cookies have expired by themselves, in seconds since 1970. */
  readonly expires: number
}

const NOT_ENDED: EndedSession = { until: -1 }
const ENDED: EndedSession = { until: Infinity }

interface EndedSessionsOptions {
  readonly records: WatchedRecords
  /** Called if expired records cannot be removed, or those of another node cannot be read. */
  onFault(fault: unknown): void
}

export class EndedSessions {
  readonly #options: EndedSessionsOptions
  readonly #cache: RecordCache<EndedSession>
  readonly #listeners = new Listeners<Parameters<AccountListener>>()
  readonly #unwatch: () => void
  /** Sessions that this node is ending, whose listeners it calls itself. */
  readonly #own = new Set<string>()
  readonly #sweep: RecordSweep
  /** The time of the last logout, in seconds since 1970. */
  #now = 0

  constructor(options: EndedSessionsOptions) {
    this.#options = options
    const { records, onFault } = options
    const isExpired = (value: string) => (endIn(value)?.expires ?? Infinity) < this.#now
    this.#sweep = new RecordSweep({ records, kind: KIND, isExpired, onFault })
    this.#cache = new RecordCache({ records, kind: KIND, max: REMEMBERED, parse: endedIn })
    this.#unwatch = records.watchCatalog((change) => {
      if (change.type === 'any') this.#listeners.tell('all')
      if (change.type !== 'records' || change.kind !== KIND) return
      const others = change.keys.filter((key) => !this.#own.has(key))
      if (others.length > 0) this.#hear(others).catch(onFault)
    })
  }

  /**
   * @param session its key
   * @returns no promise if it is remembered
   * @throws as `readRecords`
   */
  of(session: string): EndedSession | Promise<EndedSession> {
    return this.#cache.get(session)
  }

  /** Whether cookies of this time are remembered as not ended. @param time in seconds since 1970 */
  isOpen(session: string, time: number): boolean {
    return (this.#cache.known(session)?.until ?? Infinity) < time
  }

  /**
   * Ends a session on all nodes, durably when it resolves.
   * @param now in seconds since 1970
   * @throws as `writeRecords`; the session then goes on
   */
  async end(session: string, end: End, now: number): Promise<void> {
    this.#own.add(session)
    try {
      await this.#options.records.writeRecords([{ kind: KIND, key: session, value: JSON.stringify(end) }])
    } finally {
      this.#own.delete(session)
    }
    this.#listeners.tell(new Set([end.name]))
    this.#now = now
    this.#sweep.step()
  }

  /** As {@link Accounts.onChange}, for the accounts whose sessions were ended on any node. */
  onChange(listener: AccountListener): () => void {
    return this.#listeners.add(listener)
  }

  async #hear(sessions: readonly string[]): Promise<void> {
    const values = await this.#options.records.readRecords(KIND, sessions)
    const names = values.flatMap((value) => endIn(value)?.name ?? [])
    if (names.length > 0) this.#listeners.tell(new Set(names))
  }

  /** Call it before the databases are closed. */
  async close(): Promise<void> {
    this.#unwatch()
    this.#cache.close()
    await this.#sweep.close()
  }
}

/** @returns null if there is none, or none that this version understands */
function endIn(value: string | null): End | null {
  const { until, name, expires } = jsonObjectIn(value) ?? {}
  if (typeof until !== 'number' || typeof name !== 'string' || typeof expires !== 'number') return null
  return { until, name, expires }
}

/** @param value of a record; null: nobody has ended the session. A damaged one means that somebody has, at an unknown time. */
function endedIn(value: string | null): EndedSession {
  return value === null ? NOT_ENDED : (endIn(value) ?? ENDED)
}
