/**
 * Notices when most of a database is deleted within a minute, as by a device that was reset or that misunderstood an
 * answer (clients.md pain 10). It counts documents that were live and are deleted now, by DELETE, by a bulk, or by
 * tombstones that a device replicates. Nothing is refused.
 */

/** The thresholds for an alarm. */
interface DeletionLimits {
  /** Percent of the live documents; 0 turns the watch off. */
  readonly percent: number
  /** Fewer deleted documents never raise an alarm. */
  readonly documents: number
}

/** Too many deletions; times in ms since 1970. */
export interface MassDeletion {
  /** Just before the first of them. */
  readonly since: number
  /** The last one so far. */
  readonly until: number
  readonly deleted: number
  /** Live documents before the first of them. */
  readonly of: number
  /** The account that deleted most of them; null for requests without an account. */
  readonly account: string | null
}

/** The documents that one call deleted. */
interface Deletions {
  /** 0 if the call deleted only some leaves of a document in conflict, as the first calls of such a deletion do. */
  readonly count: number
  /** The time just before the first tombstone was stored, in ms since 1970. */
  readonly since: number
  readonly account: string | null
  /** Live documents that remain. */
  readonly left: number
}

/** Deletions of one account in quick succession. */
interface Burst {
  readonly since: number
  readonly account: string | null
  until: number
  count: number
}

/** A mass deletion that is still going on. */
interface Incident {
  readonly since: number
  readonly of: number
  deleted: number
  /** Deletions in the last alarm. */
  reported: number
}

const WINDOW_MS = 60_000
/** Deletions of one account within this time count as one burst. */
const BURST_MS = 1000
const MAX_BURSTS = 1000
/** The deletions must grow by this factor before the next alarm. */
const NEXT_ALARM_FACTOR = 1.25

export class DeletionWatch {
  readonly #limits: () => DeletionLimits
  readonly #alarm: (found: MassDeletion) => void
  /** The bursts of the last minute, oldest first. */
  #bursts: Burst[] = []
  #incident: Incident | null = null

  /**
   * @param limits called each time, since they can change
   * @param alarm called when deletions become too many, and again while they go on
   */
  constructor(limits: () => DeletionLimits, alarm: (found: MassDeletion) => void) {
    this.#limits = limits
    this.#alarm = alarm
  }

  /** Counts the deletions of a call after they are stored. @param now in ms since 1970 */
  note(deletions: Deletions, now: number): void {
    const { percent, documents } = this.#limits()
    this.#dropOld(now)
    this.#add(deletions, now)
    if (percent === 0) return
    if (this.#incident !== null) this.#continue(this.#incident, deletions, now)
    else this.#detect(deletions.left, percent, documents, now)
  }

  /** Drops bursts older than the window. A clock that was set back drops all of them. */
  #dropOld(now: number): void {
    this.#bursts = this.#bursts.filter(({ until }) => until <= now && now - until < WINDOW_MS)
    if (this.#bursts.length === 0) this.#incident = null
  }

  #add({ count, since, account }: Deletions, now: number): void {
    const last = this.#bursts.at(-1)
    const isOfLast = last?.account === account && now - last.since < BURST_MS
    if (last !== undefined && (isOfLast || this.#bursts.length >= MAX_BURSTS)) {
      last.count += count
      last.until = now
    } else this.#bursts.push({ since, account, until: now, count })
  }

  #detect(left: number, percent: number, documents: number, now: number): void {
    const deleted = this.#bursts.reduce((sum, { count }) => sum + count, 0)
    const of = left + deleted
    if (deleted < documents || deleted * 100 < percent * of) return
    const since = Math.min(...this.#bursts.map((burst) => burst.since))
    this.#report({ since, of, deleted, reported: 0 }, now)
  }

  #continue(incident: Incident, { count, left }: Deletions, now: number): void {
    incident.deleted += count
    if (left === 0 || incident.deleted >= incident.reported * NEXT_ALARM_FACTOR) this.#report(incident, now)
  }

  #report(incident: Incident, now: number): void {
    const { since, of, deleted } = incident
    incident.reported = deleted
    this.#incident = incident
    // Documents that were created in the meantime may also have been deleted.
    this.#alarm({ since, until: now, deleted, of: Math.max(of, deleted), account: this.#mainAccount() })
  }

  #mainAccount(): string | null {
    const counts = new Map<string | null, number>()
    for (const { account, count } of this.#bursts) counts.set(account, (counts.get(account) ?? 0) + count)
    const [top] = [...counts].sort(([, a], [, b]) => b - a)
    return top === undefined ? null : top[0]
  }
}
