/** One random run: three devices and a server, until all four have the same histories. */
import type { Test } from 'tap'
import { call } from './call.ts'
import { type Device, device, type LiveSync, liveSync, type Remote, remote } from './devices.ts'
import { deviceHistories, type Histories, serverHistories } from './histories.ts'
import type { Random } from './random.ts'
import { chooseEdit, editOnDevice, editOnServer, isRejected, VALIDATION } from './random-sync-edits.ts'

const DATABASE = 'notes'
/** After two rounds, all devices have everything; then nothing may change any more. */
const MAX_ROUNDS = 10

export interface RandomRunOptions {
  readonly random: Random
  readonly steps: number
  readonly server: { readonly url: string; start(): Promise<void>; down(): Promise<void> }
  /** The limit of revisions of server and devices. With a limit, ancestries are not compared. */
  readonly revsLimit?: number
  /** Whether the server runs validate functions. */
  readonly validates: boolean
}

const STEPS = {
  edit: 20,
  editOnServer: 3,
  syncOnce: 4,
  pushOnce: 2,
  pullOnce: 2,
  syncPeers: 1,
  goLive: 2,
  goOffline: 2,
  restart: 0.7,
} as const

interface Member {
  readonly db: Device
  readonly away: Remote
  live: LiveSync | null
}

export class RandomRun {
  readonly #t: Test
  readonly #options: RandomRunOptions
  readonly #members: Member[] = []
  /** The log of all steps, to find the cause of a failure. */
  readonly log: string[] = []
  /** Steps until a stopped server restarts. */
  #downFor = 0

  constructor(t: Test, options: RandomRunOptions) {
    this.#t = t
    this.#options = options
  }

  async run(): Promise<void> {
    await this.#setUp()
    for (let step = 0; step < this.#options.steps; step++) {
      this.log.push(`${step} ${await this.#step()}`)
    }
    await this.#settle()
    await this.#compare()
  }

  async #setUp(): Promise<void> {
    const { server, revsLimit, validates } = this.#options
    await call(server, 'PUT', `/${DATABASE}`)
    if (revsLimit !== undefined)
      await call(server, 'PUT', `/${DATABASE}/_revs_limit`, { body: `${revsLimit}` })
    if (validates) await call(server, 'PUT', `/${DATABASE}/${VALIDATION._id}`, { body: VALIDATION })
    for (let n = 0; n < 3; n++) {
      const db = await device(this.#t, 'memory', revsLimit === undefined ? {} : { revs_limit: revsLimit })
      this.#members.push({ db, away: remote(`${server.url}/${DATABASE}`), live: null })
    }
  }

  async #step(): Promise<string> {
    const { random, server } = this.#options
    if (this.#downFor > 0 && --this.#downFor === 0) {
      await server.start()
      return 'the server is back'
    }
    const step = random.weighted(STEPS)
    const at = random.below(this.#members.length)
    const member = this.#members[at] as Member
    const { db, away } = member
    switch (step) {
      case 'edit': {
        const edit = chooseEdit(random)
        if (edit === 'writeRejected' && !this.#options.validates) return 'nothing'
        return `device ${at}: ${await editOnDevice(db, edit, random)}`
      }
      case 'editOnServer':
        return this.#downFor > 0 ? 'nothing' : editOnServer(server, DATABASE, random)
      case 'syncOnce':
        return `device ${at} syncs: ${await outcome(db.sync(away.db))}`
      case 'pushOnce':
        return `device ${at} pushes: ${await outcome(db.replicate.to(away.db, { batch_size: 3 }))}`
      case 'pullOnce':
        return `device ${at} pulls: ${await outcome(db.replicate.from(away.db, { batch_size: 3 }))}`
      case 'syncPeers': {
        const peer = this.#members[(at + 1) % this.#members.length] as Member
        return `device ${at} syncs with the next: ${await outcome(db.sync(peer.db))}`
      }
      case 'goLive':
        member.live ??= liveSync(this.#t, db, away.db)
        return `device ${at} goes live`
      case 'goOffline':
        await this.#goOffline(member)
        return `device ${at} goes offline`
      case 'restart':
        if (this.#downFor > 0) return 'nothing'
        this.#downFor = 1 + random.below(8)
        await server.down()
        return 'the server is gone'
    }
  }

  async #goOffline(member: Member): Promise<void> {
    await member.live?.stop()
    this.#t.strictSame(member.live?.errors ?? [], [], 'no live sync gave up')
    member.live = null
  }

  /** All devices sync until none has anything new. */
  async #settle(): Promise<void> {
    if (this.#downFor > 0) await this.#options.server.start()
    for (const member of this.#members) await this.#goOffline(member)
    for (let round = 0; round < MAX_ROUNDS; round++) {
      let moved = 0
      for (const { db, away } of this.#members) {
        const { push, pull } = await db.sync(away.db)
        moved += (push?.docs_written ?? 0) + (pull?.docs_written ?? 0)
      }
      if (moved === 0) return
    }
    this.#t.fail(`still not at rest after ${MAX_ROUNDS} rounds`)
  }

  async #compare(): Promise<void> {
    const there = await serverHistories(this.#options.server, DATABASE)
    this.#t.comment(summary(there))
    this.#t.strictSame(Object.keys(there).filter(isRejected), [], 'the server has nothing that it rejects')
    for (const [at, { db }] of this.#members.entries()) {
      const here = await deviceHistories(db)
      const [one, other] = this.#options.revsLimit === undefined ? [here, there] : asFarAsKept(here, there)
      this.#t.strictSame(compared(one), compared(other), `device ${at} has what the server has`)
      this.#t.strictSame(
        await db.revsDiff(missing(here, there)),
        {},
        'the device knows every revision of the server',
      )
      const asked = { body: missing(there, here) }
      const { json } = await call(this.#options.server, 'POST', `/${DATABASE}/_revs_diff`, asked)
      this.#t.strictSame(json, {}, 'as the server does')
    }
  }
}

function compared(histories: Histories): readonly unknown[] {
  return Object.entries(histories).filter(([id]) => !isRejected(id))
}

/** The leaves that only `theirs` has, by document. */
function missing(mine: Histories, theirs: Histories): Record<string, string[]> {
  const entries = Object.entries(theirs)
    .filter(([id]) => !isRejected(id))
    .map(
      ([id, { leaves }]) =>
        [id, leaves.map(({ rev }) => rev).filter((rev) => !hasLeaf(mine, id, rev))] as const,
    )
  return Object.fromEntries(entries.filter(([, revs]) => revs.length > 0))
}

function hasLeaf(histories: Histories, id: string, rev: string): boolean {
  return histories[id]?.leaves.some((leaf) => leaf.rev === rev) ?? false
}

/**
 * The parts of both histories that must agree with a small limit of revisions. Each side truncates ancestries at
 * another point. A side that has forgotten that a revision was an ancestor, and then receives it, stores it as a leaf.
 * A side that still knows the ancestor does not, and has nothing to send. (CouchDB and PouchDB do the same.)
 */
function asFarAsKept(one: Histories, other: Histories): readonly [Histories, Histories] {
  return [keptIn(one, other), keptIn(other, one)]
}

function keptIn(mine: Histories, theirs: Histories): Histories {
  const entries = Object.entries(mine).map(([id, { winner, leaves }]) => {
    const shared = leaves.filter(({ rev }) => hasLeaf(theirs, id, rev))
    const isSame = shared.length === leaves.length && shared.length === theirs[id]?.leaves.length
    return [id, { winner: isSame ? winner : null, leaves: shared.map((leaf) => ({ ...leaf, ancestry: [] })) }]
  })
  return Object.fromEntries(entries) as Histories
}

/** The results of a run. They prove that it made conflicts: without any, the test would always pass. */
function summary(histories: Histories): string {
  const leaves = Object.values(histories).flatMap((document) => document.leaves)
  const deleted = leaves.filter((leaf) => leaf.deleted).length
  const longest = Math.max(0, ...leaves.map(({ rev }) => Number.parseInt(rev, 10)))
  const documents = Object.keys(histories).length
  return `${documents} documents, ${leaves.length} leaves, ${deleted} of them deleted, up to revision ${longest}`
}

/** The end of a one-shot replication, which is expected to fail while the server is stopped. */
async function outcome(replication: Promise<unknown>): Promise<string> {
  return replication.then(
    () => 'done',
    (error: unknown) => `failed (${(error as Error).message})`,
  )
}
