/** A server whose databases are copied and restored, and devices of every habit that sync with it. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import type { Test } from 'tap'
import type { RestoreOutcome } from '../../src/backup/restore.ts'
import { reachServer } from '../../src/control/control-socket.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { type Device, device, type Remote, remote } from '../protocol/devices.ts'

/** Copies the database `notes` of a server as it stands, as a backup does. @returns the copy's path */
export async function copyNotes(t: Test, { dataDir }: { readonly dataDir: string }): Promise<string> {
  const copy = join(await temporaryFolder(t), 'notes.sqlite')
  const file = new Sqlite(join(dataDir, 'databases', 'notes.sqlite'), { readonly: true })
  file.prepare('VACUUM INTO ?').run(copy)
  file.close()
  return copy
}

/** Restores `notes` from a copy, as the command line asks a running server. */
export async function restoreNotes(
  { dataDir }: { readonly dataDir: string },
  copy: string,
): Promise<RestoreOutcome> {
  const controls = await reachServer(dataDir)
  if (controls === null) throw new Error('no server is there')
  return controls.restore({ backup: copy, databases: ['notes'], as: null })
}

export type Habit = 'live' | 'live without retry' | 'once and again' | 'stopped meanwhile'

/** A device, and an app on it that syncs in its own way. */
export class App {
  readonly db: Device
  readonly habit: Habit
  readonly errors: { status?: number }[] = []
  readonly remotes: Remote[] = []
  readonly #address: string
  #sync: PouchDB.Running<PouchDB.SyncResult> | undefined
  #ended: Promise<void> = Promise.resolve()
  #isOn = false

  private constructor(db: Device, habit: Habit, address: string) {
    this.db = db
    this.habit = habit
    this.#address = address
  }

  static async start(t: Test, habit: Habit, server: { readonly url: string }): Promise<App> {
    const app = new App(await device(t), habit, `${server.url}/notes`)
    t.teardown(() => app.stop())
    app.start()
    return app
  }

  start(): void {
    this.#isOn = true
    this.#ended = this.#run()
  }

  /** As apps do that have no retry: what ends with an error is begun again. */
  async #run(): Promise<void> {
    while (this.#isOn) {
      const there = remote(this.#address)
      this.remotes.push(there)
      const isLive = this.habit !== 'once and again'
      const retry = this.habit === 'live' || this.habit === 'stopped meanwhile'
      this.#sync = this.db.sync(there.db, { live: isLive, retry, back_off_function: backOff })
      await this.#sync.then(
        () => undefined,
        (error: { status?: number }) => void this.errors.push(error),
      )
      if (this.#isOn) await new Promise((resolve) => setTimeout(resolve, 30))
    }
  }

  async stop(): Promise<void> {
    this.#isOn = false
    this.#sync?.cancel()
    await this.#ended
  }
}

function backOff(before: number): number {
  return Math.min(500, before === 0 ? 20 : before * 2)
}

/** Waits until each device, and the server, has these documents. */
export async function untilAllHave(
  server: { readonly url: string },
  devices: readonly Device[],
  ids: readonly string[],
): Promise<void> {
  const has = async (db: Device) => {
    const { rows } = await db.allDocs({ keys: [...ids] })
    return rows.every((row) => row.error === undefined)
  }
  const there = remote(`${server.url}/notes`)
  await until(`all have ${ids.join(', ')}`, async () => {
    for (const db of [there.db, ...devices]) if (!(await has(db))) return false
    return true
  })
}
