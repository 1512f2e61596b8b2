/**
 * The moments in which the server is killed, all while the writers write. Another is a row of {@link MOMENTS}: it
 * brings the server to where it should die, calls `strike` until that has killed, and says afterwards whether the kill
 * fell inside.
 */
import { randomBytes, randomInt } from 'node:crypto'
import { copyFileSync, existsSync, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises'
import Database from 'better-sqlite3'
import { COPIES_FOLDER } from '../../../src/storage/storage-engine.ts'
import type { BuiltServer } from '../built-server.ts'
import type { Client } from './client.ts'
import { databaseFile, isInCheckpoint, unfinishedBackups, withCopy } from './files.ts'
import type { Ledger } from './ledger.ts'
import { isOld } from './old-file.ts'
import { FILES, LARGE_PURGE, largePurge, upload } from './writers.ts'

export interface Stage {
  readonly server: BuiltServer
  readonly client: Client
  readonly ledger: Ledger
  /** A file of the first version of the schema. */
  readonly oldFile: string
  /** How long it takes to open it, in ms. */
  readonly openingMs: number
  /** A folder for what a moment needs. */
  readonly scratch: string
  /** The number of this kill. */
  readonly at: number
  /** Lets something go on until the kill: whatever else ends it is a fault. */
  beside(work: Promise<unknown>): void
  /** Kills the server, if enough writes are in flight. @returns whether it is killed */
  strike(): boolean
  /** Whether too much time went by: the moment is missed. */
  isLate(): boolean
}

export interface Moment {
  readonly name: string
  /** Puts what it needs into the data folder; the server is stopped. */
  prepare?(stage: Stage): void
  /** Brings the server there, and strikes. May return without having done so when it is late. */
  reach(stage: Stage): Promise<void>
  /** Of a server that is gone: whether it was inside. Absent where there is nothing to see. */
  wasInside?(stage: Stage): boolean
}

/** Strikes as soon as something holds that can be seen from outside. */
async function strikeWhen(stage: Stage, holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!stage.isLate()) {
    if ((await holds()) && stage.strike()) return
    await turn()
  }
}

/** Strikes as soon as a query on a database's file tells a number above a limit. */
async function strikeAbove(stage: Stage, database: string, sql: string, limit?: number): Promise<void> {
  const file = new Database(databaseFile(stage.server.dataDir, database), { readonly: true })
  try {
    const read = file.prepare(sql).pluck()
    const above = limit ?? Number(read.get() ?? 0)
    await strikeWhen(stage, () => Number(read.get() ?? 0) > above)
  } finally {
    file.close()
  }
}

function numberIn(stage: Stage, database: string, sql: string): number {
  const path = databaseFile(stage.server.dataDir, database)
  return withCopy(path, stage.scratch, (file) => Number(file.prepare(sql).pluck().get() ?? 0))
}

/**
 * Of a task that `_active_tasks` shows: whether it was at work in the last answer before the kill.
 * @param after how long it is let work, in ms
 */
async function strikeInTask(stage: Stage, type: string, database: string, after = 0): Promise<void> {
  let since = Number.POSITIVE_INFINITY
  await strikeWhen(stage, async () => {
    const { json } = await stage.client.get('/_active_tasks')
    const isAtWork = json.some(
      (task: { type: string; database: string }) => task.type === type && task.database === database,
    )
    const now = performance.now()
    since = isAtWork ? Math.min(since, now) : since
    return now - since >= after
  })
}

const anyMoment: Moment = {
  name: 'any moment',
  async reach(stage) {
    await delay(randomInt(20, 400))
    await strikeWhen(stage, () => true)
  },
}

const UNNAMED =
  'SELECT count(*) FROM blob AS b WHERE NOT EXISTS (SELECT 1 FROM attachment AS a WHERE a.blob = b.num)'

const compaction: Moment = {
  name: 'inside a compaction',
  prepare: putOldFile,
  async reach(stage) {
    const name = oldName(stage)
    await stage.client.get(`/${name}`)
    await stage.client.succeed('POST', `/${name}/_compact`, { body: {} })
    await strikeInTask(stage, 'database_compaction', name)
  },
  // Some of what it removes is still there.
  wasInside: (stage) => numberIn(stage, oldName(stage), UNNAMED) > 0,
}

/** The share of the time of an opening within which the kill of a migration falls. */
let migrationShare = 0.4

const migration: Moment = {
  name: 'inside a migration',
  prepare: putOldFile,
  async reach(stage) {
    stage.beside(stage.client.get(`/${oldName(stage)}`))
    while (!isMigrating(stage) && !stage.isLate()) await delay(1)
    await delay(Math.random() * migrationShare * stage.openingMs)
    await strikeWhen(stage, () => true)
  },
  wasInside(stage) {
    const path = databaseFile(stage.server.dataDir, oldName(stage))
    const isInside = isMigrating(stage) && withCopy(path, stage.scratch, isOld)
    // This one was faster than the opening that was measured: the next kill comes earlier.
    if (!isInside) migrationShare /= 2
    return isInside
  },
}

/** Whether the file was copied and is open again, as while it is migrated. */
function isMigrating(stage: Stage): boolean {
  const { dataDir } = stage.server
  const path = databaseFile(dataDir, oldName(stage))
  return existsSync(join(dataDir, COPIES_FOLDER, 'databases-1', basename(path))) && existsSync(`${path}-shm`)
}

export function oldName({ at }: Pick<Stage, 'at'>): string {
  return `old-${at}`
}

function putOldFile(stage: Stage): void {
  copyFileSync(stage.oldFile, databaseFile(stage.server.dataDir, oldName(stage)))
}

const backup: Moment = {
  name: 'inside a backup',
  prepare: putOldFile,
  async reach(stage) {
    const name = oldName(stage)
    await stage.client.get(`/${name}`)
    await backUp(stage, { databases: [PURGED] })
    while (!stage.isLate() && (await isBackingUp(stage))) await turn()
    // A busy machine is still at the first: another is refused, and that one will do.
    if (!stage.isLate()) await backUp(stage, {})
    // Now in its beginning, now further on.
    await strikeInTask(stage, 'backup', name, Math.random() * stage.openingMs)
  },
  wasInside: ({ server }) => unfinishedBackups(server.dataDir).length > 0,
}

async function backUp(stage: Stage, body: object): Promise<void> {
  await stage.client.succeed('POST', '/_settee/backups', { body })
}

async function isBackingUp(stage: Stage): Promise<boolean> {
  const { json } = await stage.client.get('/_settee/backups')
  return json.running !== null
}

const UPLOAD_BYTES = 6_000_000

/** Whether the server has been sent the first half of what it waits for. */
let isHalfSent = false

const receiving: Moment = {
  name: 'while an attachment arrives',
  async reach(stage) {
    const id = `half-${stage.at}`
    // Of half an attachment nothing may be there: no write is expected of it.
    stage.ledger.doc(FILES, id).isDirty = true
    isHalfSent = false
    const halves = async function* () {
      yield randomBytes(UPLOAD_BYTES / 2)
      isHalfSent = true
      await new Promise<never>(() => undefined)
    }
    const type = 'application/x-half'
    stage.beside(stage.client.ask('PUT', `/${FILES}/${id}/alone`, { body: halves(), type }))
    await strikeWhen(stage, () => isHalfSent)
  },
  wasInside: () => isHalfSent,
}

const STAGING = "SELECT count(*) FROM blob WHERE state = 'staging'"

/** Of the contents that are being stored, the chunks of the one that has most: those of the writers have two. */
const LONGEST_STAGING =
  "SELECT max(chunks) FROM (SELECT count(*) AS chunks FROM chunk WHERE blob IN (SELECT num FROM blob WHERE state = 'staging') GROUP BY blob)"

const storing: Moment = {
  name: 'while an attachment is stored',
  async reach(stage) {
    const id = `large-${stage.at}`
    const bytes = randomBytes(4 * UPLOAD_BYTES)
    stage.beside(upload(stage.client, stage.ledger.doc(FILES, id), `/${FILES}/${id}`, bytes))
    await strikeAbove(stage, FILES, LONGEST_STAGING, 4)
  },
  wasInside: (stage) => numberIn(stage, FILES, STAGING) > 0,
}

const checkpoint: Moment = {
  name: 'inside a checkpoint',
  reach: (stage) => strikeWhen(stage, () => isInCheckpoint(databaseFile(stage.server.dataDir, FILES))),
  wasInside: (stage) => isInCheckpoint(databaseFile(stage.server.dataDir, FILES)),
}

const PURGES = 'SELECT max(seq) FROM purge'
/** The newest purge when the moment began. */
let purgedBefore = 0

const purging: Moment = {
  name: 'inside a purge',
  async reach(stage) {
    purgedBefore = numberIn(stage, PURGED, PURGES)
    const purge = largePurge(stage.ledger, PURGED, `large-purge-${stage.at}`)
    const again = async () => {
      while (!stage.isLate()) await purge.step(stage.client)
    }
    stage.beside(again())
    await strikeAbove(stage, PURGED, PURGES)
  },
  // Each document's has a number.
  wasInside: (stage) => (numberIn(stage, PURGED, PURGES) - purgedBefore) % LARGE_PURGE !== 0,
}

/** Where nothing else is written. */
export const PURGED = 'purged'

const making: Moment = {
  name: 'while a database is made or removed',
  reach: (stage) => strikeWhen(stage, () => unfinished(stage)),
  wasInside: unfinished,
}

function unfinished({ server }: Stage): boolean {
  return readdirSync(join(server.dataDir, 'databases')).some((name) => name.includes('.unfinished'))
}

/** Each once a round, any moment between two. */
export const MOMENTS: readonly Moment[] = [
  anyMoment,
  compaction,
  migration,
  receiving,
  anyMoment,
  storing,
  backup,
  checkpoint,
  purging,
  anyMoment,
  making,
]
