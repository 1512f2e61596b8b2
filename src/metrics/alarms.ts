/** Alarms about mass deletions. They are logged as warnings, and stored until a user dismisses them. */
import type { Logger } from 'pino'
import { newUuid } from '../core/ids.ts'
import type { MassDeletion } from '../documents/deletion-watch.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import { collectRecords, type Records, type RecordWrite, type ServerRecord } from '../storage/records.ts'
import type { Databases } from '../threads/databases.ts'

const ALARM_KIND = 'alarm'
/** Limits for all databases together and for one; the oldest alarms are removed first. */
const MAX_ALARMS = 200
const MAX_ALARMS_PER_DATABASE = 20

/** The device that deleted the documents, as far as it is known. */
export interface Device {
  /** The name of the device token; null: the device used a password, or no login. */
  readonly token: string | null
  /** The User-Agent header. */
  readonly client: string
  readonly address: string
}

export interface Alarm extends MassDeletion {
  readonly id: string
  readonly database: string
  readonly incarnation: number
  /** null: unknown. */
  readonly device: Device | null
}

interface AlarmsOptions {
  readonly records: Pick<Records, 'listRecords' | 'writeRecords'>
  readonly logger: Pick<Logger, 'warn' | 'error'>
  /** The incarnation of a database; undefined: it does not exist; null: unknown at the moment. */
  incarnationOf(database: string): Promise<number | null | undefined>
  /** Whether a compaction keeps old bodies (`settee/keep_days`). */
  keepsVersions(): boolean
}

/** @returns {@link AlarmsOptions.incarnationOf} for these databases */
export function incarnationsIn(databases: Pick<Databases, 'has' | 'get'>): AlarmsOptions['incarnationOf'] {
  return async (name) => {
    if (!(await databases.has(name))) return undefined
    try {
      return (await databases.get(name)).incarnation
    } catch {
      // A restore is replacing it.
      return null
    }
  }
}

/** The alarms of all nodes. They are read at each call, which is seldom. */
export class Alarms {
  readonly #options: AlarmsOptions
  /** Those that could not be stored, by id; they are stored with the next one. */
  readonly #unsaved = new Map<string, Alarm>()
  #work: Promise<unknown> = Promise.resolve()

  constructor(options: AlarmsOptions) {
    this.#options = options
  }

  /** Records a mass deletion, or its progress. */
  raise({ name, incarnation }: DatabaseEntry, found: MassDeletion, device: Device | null): void {
    const { logger } = this.#options
    const raised = { ...found, database: name, incarnation, device }
    this.#warn(raised)
    this.#work = this.#work
      .then(() => this.#store(raised))
      .catch((error: unknown) => logger.error({ err: error }, 'cannot store an alarm'))
  }

  async #store(raised: Omit<Alarm, 'id'>): Promise<void> {
    const { incarnation, since } = raised
    const stored = await this.#read()
    const known = stored.find((each) => each.incarnation === incarnation && each.since === since)
    const id = known?.id ?? newUuid(since)
    const alarm = { ...raised, id, device: raised.device ?? known?.device ?? null }
    const all = [...stored.filter((each) => each !== known), alarm]
    this.#unsaved.set(id, alarm)
    for (const oldest of this.#unsaved.keys()) {
      if (this.#unsaved.size <= MAX_ALARMS_PER_DATABASE) break
      this.#unsaved.delete(oldest)
    }
    const unsaved = [...this.#unsaved.values()]
    await this.#options.records.writeRecords([
      ...unsaved.map(recordOf),
      ...(await this.#surplusOf(all, alarm)),
    ])
    this.#unsaved.clear()
  }

  /** All of them, the oldest first. */
  async #read(): Promise<Alarm[]> {
    const records = await collectRecords(this.#options.records, ALARM_KIND)
    const stored = records.flatMap((record) => alarmOf(record) ?? [])
    const byId = new Map([...stored, ...this.#unsaved.values()].map((alarm) => [alarm.id, alarm]))
    return [...byId.values()].sort((a, b) => a.until - b.until)
  }

  #warn(alarm: Omit<Alarm, 'id'>): void {
    const { database, deleted, of, account, device, since } = alarm
    const facts = { database, deleted, of, account, ...device, since: new Date(since).toISOString() }
    const kept = this.#options.keepsVersions() ? 'are kept' : 'are there until the next compaction'
    this.#options.logger.warn(
      facts,
      `${deleted} of ${of} documents of the database ${database} were deleted within a minute; ` +
        `their old versions ${kept}; to restore them: ${restoreCommand(alarm)}`,
    )
  }

  /** The removals of alarms above the limits, and of those of deleted databases. @param all the oldest first */
  async #surplusOf(all: readonly Alarm[], { incarnation }: Alarm): Promise<RecordWrite[]> {
    const current = new Set(await this.#currentOf(all))
    const ofOne = all.filter((alarm) => alarm.incarnation === incarnation)
    const removed = new Set([
      ...all.filter((alarm) => !current.has(alarm)),
      ...ofOne.slice(0, Math.max(0, ofOne.length - MAX_ALARMS_PER_DATABASE)),
      ...all.slice(0, Math.max(0, all.length - MAX_ALARMS)),
    ])
    return [...removed].map(({ id }) => ({ kind: ALARM_KIND, key: id, value: null }))
  }

  /** Those whose database was not deleted since. */
  async #currentOf(alarms: readonly Alarm[]): Promise<Alarm[]> {
    const now = new Map<string, number | null | undefined>()
    for (const { database } of alarms) {
      if (!now.has(database)) now.set(database, await this.#options.incarnationOf(database))
    }
    return alarms.filter(({ database, incarnation }) => isSame(now.get(database), incarnation))
  }

  /** @param database only the alarms of this database @returns the newest first @throws as `listRecords` */
  async list(database?: string): Promise<readonly Alarm[]> {
    await this.#work
    const all = await this.#read()
    const asked = all.filter((alarm) => database === undefined || alarm.database === database)
    return (await this.#currentOf(asked)).reverse()
  }

  /**
   * Removes an alarm, durably when it resolves.
   * @param database if given, the alarm must be of this database
   * @returns false if there is no such alarm
   */
  async dismiss(id: string, database?: string): Promise<boolean> {
    const alarm = (await this.list(database)).find((one) => one.id === id)
    if (alarm === undefined) return false
    await this.#options.records.writeRecords([{ kind: ALARM_KIND, key: id, value: null }])
    this.#unsaved.delete(id)
    return true
  }

  /** The number of alarms, for `_up?deep=1`. Alarms are not a fault. */
  async health(): Promise<
    readonly { readonly name: string; readonly ok: boolean; readonly count: number }[]
  > {
    return [{ name: 'alarms', ok: true, count: (await this.list()).length }]
  }

  /** Resolves when all alarms are stored. */
  async close(): Promise<void> {
    await this.#work
  }
}

function isSame(now: number | null | undefined, incarnation: number): boolean {
  return now === null || now === incarnation
}

/** @returns the command that restores the documents to just before the deletion */
export function restoreCommand({ database, since }: Pick<Alarm, 'database' | 'since'>): string {
  // Quoted, because some characters of database names have a meaning in a shell.
  return `settee rewind '${database}' --to ${new Date(since).toISOString()}`
}

function recordOf({ id, ...alarm }: Alarm): RecordWrite {
  return { kind: ALARM_KIND, key: id, value: JSON.stringify(alarm) }
}

/** @returns null for a record that this version does not understand */
function alarmOf({ key, value }: ServerRecord): Alarm | null {
  try {
    const alarm = JSON.parse(value) as Partial<Alarm>
    const numbers = [alarm.incarnation, alarm.since, alarm.until, alarm.deleted, alarm.of]
    if (typeof alarm.database !== 'string' || numbers.some((each) => typeof each !== 'number')) return null
    return { ...(alarm as Alarm), id: key, device: alarm.device ?? null, account: alarm.account ?? null }
  } catch {
    return null
  }
}
