/** One run of the test: a server, who writes to it, the kills, and what was found wrong. */
import { randomInt } from 'node:crypto'
import { copyFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import type { Test } from 'tap'
import { temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { type BuiltServer, builtServer } from '../built-server.ts'
import { Audit } from './audit.ts'
import { Client, Unanswered } from './client.ts'
import { Phone, untilAllSame } from './devices.ts'
import { backupFaults, databaseFile, fileFaults } from './files.ts'
import { Ledger, type Stub } from './ledger.ts'
import { MOMENTS, type Moment, oldName, PURGED, type Stage } from './moments.ts'
import { OLD_ATTACHMENTS, OLD_DIGEST, OLD_DOCS, oldId, oldRev, writeOldFile } from './old-file.ts'
import * as writers from './writers.ts'

const MIN_IN_FLIGHT = 20
/** A moment that was not met is tried again, as long as there are not so many kills more than were asked for. */
const EXTRA_KILLS = 15
/** After so long a moment counts as missed. */
const LATE_MS = 20_000
/** Between looks at all files, and at everything over HTTP. */
const FULL_EVERY = 8
/** Between starts that are killed as well, before or while the server listens. */
const START_KILL_EVERY = 10
const MAX_SHOWN = 10
/** A check of everything runs beside the first kill and then each third one: it reads as much as all the audits do. */
const CHECK_EVERY = 3
const PHONES = 3
/** What the devices have before the first kill. */
const SHARED_NOTES = 1000
/** One purge of several groups, and no check of all databases but those that are asked for ({@link Run.round}). */
const LOCAL_INI = `[purge]\nmax_document_id_number = ${writers.LARGE_PURGE}\n[settee]\nscrub_interval = 0\n`
const DATABASES = [writers.NOTES, writers.FILES, writers.PILE, writers.SHARED, PURGED]

export class Run {
  readonly #t: Test
  readonly #kills: number
  readonly #server: BuiltServer
  readonly #client: Client
  readonly #ledger = new Ledger()
  readonly #audit: Audit
  readonly #scratch: string
  readonly #oldFile: string
  readonly #writers = everyWriter(this.#ledger)
  #phones: readonly Phone[] = []
  #openingMs = 0
  /** Copies of the old file that earlier kills have left. */
  #left: string[] = []
  readonly #begun = performance.now()
  readonly #starts: number[] = []
  readonly #inFlight: number[] = []
  /** How often each moment was met. */
  readonly #met = new Map(MOMENTS.map(({ name }) => [name, 0]))
  readonly #faults: string[] = []
  #isKilled = false
  /** What ends with the kill. */
  #beside: Promise<void>[] = []

  private constructor(t: Test, kills: number, server: BuiltServer, scratch: string) {
    this.#t = t
    this.#kills = kills
    this.#server = server
    this.#scratch = scratch
    this.#oldFile = join(scratch, 'old.sqlite')
    this.#client = new Client(server.url)
    t.teardown(() => this.#client.close())
    this.#audit = new Audit(this.#client, this.#ledger)
  }

  /** Starts a server and its devices. @param kills how many there are to be */
  static async begin(t: Test, kills: number): Promise<Run> {
    const run = new Run(t, kills, await builtServer(t), await temporaryFolder(t))
    writeOldFile(run.#oldFile)
    await writeFile(join(run.#server.dataDir, 'local.ini'), LOCAL_INI)
    await run.#start()
    for (const name of DATABASES) await run.#client.succeed('PUT', `/${name}`)
    await run.#client.succeed('POST', `/${writers.SHARED}/_bulk_docs`, { body: { docs: sharedNotes() } })
    const names = Array.from({ length: PHONES }, (_, at) => `phone-${at + 1}`)
    run.#phones = await Promise.all(names.map((name) => Phone.start(t, name, run.#server.url)))
    await untilAllSame(run.#client, run.#phones)
    await run.#killed()
    await run.#timeOpening()
    return run
  }

  async #start(): Promise<void> {
    this.#starts.push(await this.#server.start())
  }

  async #killed(): Promise<void> {
    this.#server.strike()
    await this.#server.gone()
  }

  /** How long a migration takes, so that kills fall into it. */
  async #timeOpening(): Promise<void> {
    const name = 'old-first'
    copyFileSync(this.#oldFile, databaseFile(this.#server.dataDir, name))
    await this.#start()
    const begun = performance.now()
    await this.#client.get(`/${name}`)
    this.#openingMs = performance.now() - begun
    this.#left.push(name)
    await this.#killed()
  }

  /** Until there were enough kills, and, in a run that is long enough, each moment was met. */
  goesOn(at: number): boolean {
    if (this.#faults.length > 0) return false
    const extra = this.#meetsAll ? EXTRA_KILLS : 0
    return at < this.#kills || (at < this.#kills + extra && [...this.#met.values()].includes(0))
  }

  /** Whether there are enough kills for each moment to be met. */
  get #meetsAll(): boolean {
    return this.#kills >= MOMENTS.length
  }

  /** A start, a look at what is there, and writes until the next kill. */
  async round(at: number): Promise<void> {
    const moment = this.#momentOf(at)
    const stage = this.#stage(at)
    moment.prepare?.(stage)
    const marks = this.#phones.map((phone) => phone.mark())
    if (at % START_KILL_EVERY === START_KILL_EVERY - 1) await this.#server.startAndKill(randomInt(1000))
    await this.#start()
    const isFull = at % FULL_EVERY === FULL_EVERY - 1
    await this.#look(isFull, moment.prepare === undefined ? [] : [oldName(stage)])
    if (this.#faults.length > 0) return
    await this.#writeUntilKilled(moment, stage)
    this.#faults.push(...this.#phones.flatMap((phone, n) => phone.faultsSince(marks[n] as number)))
    if (moment.wasInside?.(stage) ?? true) this.#met.set(moment.name, (this.#met.get(moment.name) ?? 0) + 1)
    this.#faults.push(...backupFaults(this.#server.dataDir))
    if (isFull) this.#faults.push(...fileFaults(this.#server.dataDir, this.#scratch))
    if (moment.prepare !== undefined) this.#left.push(oldName(stage))
  }

  /** After so many kills those that were never met; else the next in turn. */
  #momentOf(at: number): Moment {
    const missed = MOMENTS.filter(({ name }) => this.#met.get(name) === 0)
    const from = at < this.#kills || missed.length === 0 ? MOMENTS : missed
    return from[at % from.length] as Moment
  }

  #stage(at: number): Stage {
    const late = performance.now() + LATE_MS
    return {
      server: this.#server,
      client: this.#client,
      ledger: this.#ledger,
      oldFile: this.#oldFile,
      openingMs: this.#openingMs,
      scratch: this.#scratch,
      at,
      beside: (work) => this.#beside.push(this.#untilKilled(work)),
      strike: () => this.#strike(),
      isLate: () => performance.now() > late,
    }
  }

  /** Kills the server in this turn of the event loop, if enough writes have no answer yet. */
  #strike(): boolean {
    const { inFlight } = this.#client
    if (inFlight < MIN_IN_FLIGHT) return false
    this.#server.strike()
    this.#isKilled = true
    this.#inFlight.push(inFlight)
    return true
  }

  /** Holds what the server says against what must be there. */
  async #look(isFull: boolean, others: readonly string[]): Promise<void> {
    for (const name of this.#left.splice(0)) {
      this.#faults.push(...(await oldFaults(this.#client, name)))
      await this.#client.succeed('DELETE', `/${name}`)
    }
    this.#faults.push(...(await this.#audit.run(DATABASES, isFull, others)))
  }

  async #writeUntilKilled(moment: Moment, stage: Stage): Promise<void> {
    this.#isKilled = false
    // It would upgrade the old file before its moment.
    if (moment.prepare === undefined && stage.at % CHECK_EVERY === 0)
      await this.#client.succeed('POST', '/_settee/check', { body: {} })
    this.#beside = this.#writers.map((writer) => this.#untilKilled(this.#write(writer)))
    const devices = this.#phones.map((phone) => phone.write())
    await moment.reach(stage)
    while (!this.#isKilled) if (!this.#strike()) await turn()
    await this.#server.gone()
    await Promise.all([...this.#beside, ...devices])
  }

  async #write(writer: writers.Writer): Promise<void> {
    while (!this.#isKilled) await writer.step(this.#client)
  }

  /** Only the kill may end an answer. */
  async #untilKilled(work: Promise<unknown>): Promise<void> {
    try {
      await work
    } catch (error) {
      const isMeant = error instanceof Unanswered && this.#isKilled
      if (!isMeant) this.#faults.push(`${(error as Error).message}: ${(error as Error).cause}`)
    }
  }

  /** Once more everything; and what there was of all that. */
  async end(): Promise<void> {
    const t = this.#t
    if (this.#faults.length === 0) {
      await this.#start()
      await this.#look(true, [])
      await untilAllSame(this.#client, this.#phones)
      for (const phone of this.#phones) this.#faults.push(...phone.errors.map(String))
      this.#faults.push(...(await this.#damage()))
    }
    for (const phone of this.#phones) await phone.stop()
    await this.#killed()
    this.#faults.push(...fileFaults(this.#server.dataDir, this.#scratch))
    for (const line of this.#summary()) t.comment(line)
    t.strictSame(this.#faults.slice(0, MAX_SHOWN), [], `${this.#faults.length} faults`)
    t.ok(this.#inFlight.length >= this.#kills, `${this.#inFlight.length} kills`)
    t.ok(Math.min(...this.#inFlight) >= MIN_IN_FLIGHT, 'at each at least 20 writes were in flight')
    if (this.#meetsAll) for (const [name, times] of this.#met) t.ok(times > 0, `${times} ${name}`)
  }

  /** What a check of everything finds damaged. */
  async #damage(): Promise<string[]> {
    await this.#client.succeed('POST', '/_settee/check', { body: {} })
    let damaged: readonly object[] = []
    await until('the check ends', async () => {
      const { json } = await this.#client.get('/_settee/check')
      damaged = json.damaged
      return json.running === null && json.last !== null
    })
    return damaged.map((found) => `damaged: ${JSON.stringify(found)}`)
  }

  #summary(): string[] {
    const { acknowledged, unanswered } = this.#client
    const { checked, survived } = this.#audit
    const seconds = Math.round((performance.now() - this.#begun) / 1000)
    const starts = [...this.#starts].sort((a, b) => a - b).map(Math.round)
    return [
      `${seconds} s, ${this.#inFlight.length} kills, ${Math.min(...this.#inFlight)} to ${Math.max(...this.#inFlight)} writes in flight`,
      `${acknowledged} writes acknowledged, ${unanswered} unanswered; ${survived} things that an unanswered write had changed; ${checked} looked at`,
      `starts: median ${starts[starts.length >> 1]} ms, slowest ${starts.at(-1)} ms; a migration takes ${Math.round(this.#openingMs)} ms`,
      `devices read ${this.#phones.map(({ rows }) => rows).join(', ')} rows`,
    ]
  }
}

function sharedNotes(): object[] {
  return Array.from({ length: SHARED_NOTES }, (_, n) => ({ _id: `first-${n}`, text: 'a note' }))
}

function everyWriter(ledger: Ledger): readonly writers.Writer[] {
  const { NOTES, FILES, PILE, SHARED } = writers
  const some = (count: number, make: (name: string) => writers.Writer) =>
    Array.from({ length: count }, (_, at) => make(String.fromCharCode(97 + at)))
  return [
    ...some(10, (name) => writers.singles(ledger, NOTES, `single-${name}`)),
    ...some(3, (name) => writers.bulks(ledger, NOTES, `bulk-${name}`)),
    ...some(2, (name) => writers.singles(ledger, SHARED, `single-${name}`)),
    ...some(4, (name) => writers.inlines(ledger, FILES, `inline-${name}`)),
    ...some(4, (name) => writers.uploads(ledger, FILES, `upload-${name}`)),
    ...some(4, (name) => writers.pushes(ledger, PILE, `push-${name}`)),
    ...some(2, (name) => writers.purges(ledger, PILE, `purge-${name}`)),
    ...some(3, (name) => writers.locals(ledger, NOTES, name)),
    ...some(3, (name) => writers.locals(ledger, FILES, name)),
    ...[NOTES, FILES, PILE].map((database) => writers.securities(ledger, database)),
    ...some(3, (name) => writers.configs(ledger, name)),
    ...some(4, (name) => writers.lives(ledger, name)),
  ]
}

/** What is wrong with a database that was made by {@link writeOldFile} and opened since, maybe several times. */
async function oldFaults(client: Client, name: string): Promise<string[]> {
  const { json: info } = await client.get(`/${name}`)
  const { json: listed } = await client.get(`/${name}/_all_docs`)
  const isListed = listed.rows.every(
    (row: { id: string; value: { rev: string } }, n: number) =>
      row.id === oldId(n) && row.value.rev === oldRev(n),
  )
  const n = randomInt(OLD_DOCS)
  const { json: doc } = await client.get(`/${name}/${oldId(n)}`)
  const digests = Object.values<Stub>(doc._attachments).filter(({ digest }) => digest === OLD_DIGEST).length
  const isWhole = listed.rows.length === OLD_DOCS && isListed && info.doc_count === OLD_DOCS
  return isWhole && digests === OLD_ATTACHMENTS ? [] : [`${name} is not what it was: ${JSON.stringify(info)}`]
}
