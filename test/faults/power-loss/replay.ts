/** Records what a script does to its files, and lets the power go at points of the record. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { temporaryFolder } from '../../helpers/server.ts'
import { ALL_KEPT, ALL_LOST, Disk } from './disk.ts'
import { Ledger } from './ledger.ts'
import { randomFrom } from './random.ts'
import { makeRecorder, type RecordedEvent, type Recorder } from './recorder.ts'
import { byChance, layOut } from './states.ts'

export interface Recording {
  readonly recorder: Recorder
  readonly events: readonly RecordedEvent[]
  readonly ledger: Ledger
}

/** Runs a script that ends with SIGKILL. @param args after the folder and the path for marks */
export async function recorded(t: Test, script: URL, ...args: readonly string[]): Promise<Recording> {
  const recorder = await makeRecorder(t, join(await temporaryFolder(t), 'data'))
  t.equal(await recorder.run(script, ...args), 'SIGKILL', 'the workload came to its end')
  const events = await recorder.events()
  return { recorder, events, ledger: new Ledger(events) }
}

/** Nothing has escaped the recorder: replayed whole, the files are byte for byte what the process has left. */
export async function checkComplete(t: Test, { recorder, events }: Recording): Promise<void> {
  const disk = new Disk(recorder.folder)
  for (const event of events) disk.apply(event)
  const replayed = disk.after(ALL_KEPT)
  const left = (await readdir(recorder.folder, { recursive: true })).filter(
    (path) => !path.endsWith('-shm') && !path.endsWith('.sock'),
  )
  t.same([...replayed.keys()].sort(), left.sort(), 'the replay has the names that are there')
  const different: string[] = []
  for (const [path, bytes] of replayed) {
    if (bytes !== null && !bytes.equals(await readFile(join(recorder.folder, path)))) different.push(path)
  }
  t.same(different, [], 'and the same bytes in every file')
}

/** Where the power goes, and what was not synced is kept of by chance; everything is lost where it is not said. */
export type Cuts = ReadonlyMap<number, { readonly lost: boolean; readonly chances: number }>

/** At each acknowledgement, and at as many other points. */
export function cutsOf({ events, ledger }: Recording, seed: number, others: number): Cuts {
  const random = randomFrom(seed)
  const cuts = new Map<number, { lost: boolean; chances: number }>()
  for (const point of ledger.acknowledged) cuts.set(point, { lost: true, chances: 1 })
  for (let n = 0; n < others; n++) {
    const point = 1 + random.below(events.length)
    cuts.set(point, { lost: true, chances: 1, ...cuts.get(point) })
  }
  return cuts
}

/** Only at the acknowledgements, everything else lost. */
export function acknowledgements({ ledger }: Recording): Cuts {
  return new Map(ledger.acknowledged.map((point) => [point, { lost: true, chances: 0 }] as const))
}

/** @returns what is not as it was acknowledged, in a folder after so many events */
export type Check = (folder: string, ledger: Ledger, events: number) => Promise<string[]>

/** @returns what was not as acknowledged, and how many states were opened */
export async function cutPower(
  { recorder, events, ledger }: Recording,
  cuts: Cuts,
  {
    folder,
    seed,
    check,
    enough = Number.POSITIVE_INFINITY,
  }: { folder: string; seed: number; check: Check; enough?: number },
): Promise<{ problems: string[]; states: number }> {
  const random = randomFrom(seed)
  const disk = new Disk(recorder.folder)
  const problems: string[] = []
  let states = 0
  for (const [at, event] of events.entries()) {
    disk.apply(event)
    const cut = cuts.get(at + 1)
    if (cut === undefined) continue
    const chances = Array.from({ length: cut.chances }, () => byChance(random))
    for (const chance of cut.lost ? [ALL_LOST, ...chances] : chances) {
      await layOut(disk.after(chance), folder, chance === ALL_LOST ? undefined : GARBAGE)
      const found = await check(folder, ledger, at + 1)
      problems.push(...found.map((problem) => `after event ${at + 1}: ${problem}`))
      states += 1
      if (problems.length >= enough) return { problems, states }
    }
  }
  return { problems, states }
}

/** SQLite's index of a log is memory that is never synced: anything may stand there. */
const GARBAGE = Buffer.alloc(32_768, 0x5a)

/** The record as it were if some files, or folders, had never been synced. */
export function withoutSyncs(recording: Recording, isOmitted: (path: string) => boolean): Recording {
  const paths = new Map<number, string>()
  const events = recording.events.filter((event) => {
    if (event.kind === 'open') paths.set(event.file, event.path)
    return event.kind !== 'sync' || !isOmitted(paths.get(event.file) ?? '')
  })
  return { ...recording, events, ledger: new Ledger(events) }
}

/** One line of figures for whoever reads the test's output. */
export function figuresOf({ events, ledger }: Recording, states: number): string {
  const count = (...kinds: readonly RecordedEvent['kind'][]) =>
    events.filter(({ kind }) => kinds.includes(kind)).length
  const names = count('rename', 'link', 'remove', 'makeFolder')
  return (
    `${count('write', 'truncate')} writes, ${count('sync')} syncs, ${names} changes of names; ` +
    `${ledger.acknowledged.length} points acknowledged; ${states} states of the disk were opened`
  )
}
