/**
 * Notices that most of a database is deleted within a minute, as a device does that was reset, or misunderstands what
 * it is told (clients.md pain 10). It counts documents that were live and are not any more, however they came: by
 * DELETE, by a bulk, or as tombstones that a device replicates. Nothing is refused.
 */

/** From when on deletions are too many. */
export interface DeletionLimits {
  /** Of a hundred live documents; 0: nothing is noticed. */
  readonly percent: number
  /** Fewer are never too many. */
  readonly documents: number
}

/** Deletions that are too many; times in ms since 1970. */
export interface MassDeletion {
  /** Just before the first of them. */
  readonly since: number
  /** The last one so far. */
  readonly until: number
  readonly deleted: number
  /** Live documents before the first of them. */
  readonly of: number
  /** Who deleted most of them; null: nobody with a name. */
  readonly account: string | null
}

/** The documents that one call deleted. */
export interface Deletions {
  /** 0 where it ended only leaves beside others: what deletes a document in conflict begins with one of these. */
  readonly count: number
  /** The time just before the first tombstone was stored, in ms since 1970. */
  readonly since: number
  readonly account: string | null
  /** Live documents that are left. */
  readonly left: number
}

interface Stretch {
  readonly since: number
  readonly account: string | null
  until: number
  count: number
}

const WINDOW_MS = 60_000
/** Deletions of one account within so long count as one stretch. */
const STRETCH_MS = 1000
const MAX_STRETCHES = 1000
/** It is told again when there are so many times as many as were told of. */
const TELL_AGAIN = 1.25

interface Incident {
  readonly since: number
  readonly of: number
  deleted: number
  told: number
}

export class DeletionWatch {
  readonly #limits: () => DeletionLimits
  readonly #alarm: (found: MassDeletion) => void
  /** Of the last minute, the oldest first. */
  #stretches: Stretch[] = []
  #incident: Incident | null = null

  /**
   * @param limits asked anew each time
   * @param alarm told when deletions become too many, and again while they go on
   */
  constructor(limits: () => DeletionLimits, alarm: (found: MassDeletion) => void) {
    this.#limits = limits
    this.#alarm = alarm
  }

  /** Takes in what a call has deleted, once that is stored. @param now in ms since 1970 */
  note(deletions: Deletions, now: number): void {
    const { percent, documents } = this.#limits()
    this.#drop(now)
    this.#add(deletions, now)
    if (percent === 0) return
    if (this.#incident !== null) this.#goOn(this.#incident, deletions, now)
    else this.#judge(deletions.left, percent, documents, now)
  }

  /** Lets go of what is over: a clock that was set back ends it all. */
  #drop(now: number): void {
    this.#stretches = this.#stretches.filter(({ until }) => until <= now && now - until < WINDOW_MS)
    if (this.#stretches.length === 0) this.#incident = null
  }

  #add({ count, since, account }: Deletions, now: number): void {
    const last = this.#stretches.at(-1)
    const isOfLast = last?.account === account && now - last.since < STRETCH_MS
    if (last !== undefined && (isOfLast || this.#stretches.length >= MAX_STRETCHES)) {
      last.count += count
      last.until = now
    } else this.#stretches.push({ since, account, until: now, count })
  }

  #judge(left: number, percent: number, documents: number, now: number): void {
    const deleted = this.#stretches.reduce((sum, { count }) => sum + count, 0)
    const of = left + deleted
    if (deleted < documents || deleted * 100 < percent * of) return
    const since = Math.min(...this.#stretches.map((stretch) => stretch.since))
    this.#tell({ since, of, deleted, told: 0 }, now)
  }

  #goOn(incident: Incident, { count, left }: Deletions, now: number): void {
    incident.deleted += count
    if (left === 0 || incident.deleted >= incident.told * TELL_AGAIN) this.#tell(incident, now)
  }

  #tell(incident: Incident, now: number): void {
    const { since, of, deleted } = incident
    incident.told = deleted
    this.#incident = incident
    // Documents that were made meanwhile may have been deleted, too.
    this.#alarm({ since, until: now, deleted, of: Math.max(of, deleted), account: this.#culprit() })
  }

  #culprit(): string | null {
    const counts = new Map<string | null, number>()
    for (const { account, count } of this.#stretches) counts.set(account, (counts.get(account) ?? 0) + count)
    const [most] = [...counts].sort(([, a], [, b]) => b - a)
    return most === undefined ? null : most[0]
  }
}
