/** The trials of the bench, and the scales at which they run. */
import type { Peer } from './peer.ts'
import type { Note } from './seed.ts'

/** The sizes of the trials. */
export interface Scale {
  /** Documents that are pushed, and documents in a seeded database. */
  readonly notes: number
  readonly puts: number
  readonly gets: number
  /** Calls of `_revs_diff`. */
  readonly diffs: number
  /** Documents that each listening feed receives. */
  readonly fanouts: number
  /** Documents that are filtered. */
  readonly filtered: number
  /** Attachments of 1 MB. */
  readonly attachments: number
  /** Notes in a first sync. */
  readonly pulled: number
  /** Documents of 1 kB in one call. */
  readonly huge: number
  /** Documents in a database that grows. */
  readonly sizes: readonly number[]
  readonly databases: number
  /** Databases and device tokens in a folder that a server is started on. */
  readonly stored: number
  /** Documents of 8 kB in the database of a server that is killed. */
  readonly recovered: number
  /** Devices with live feeds, four to a database. */
  readonly devices: number
  /** Devices that stay connected, and come back at once after a restart. */
  readonly crowd: number
  /** Edits of all devices together. */
  readonly editsPerSecond: number
  readonly editSeconds: number
  /** Edits in a second, of the trial that raises them. */
  readonly editRates: readonly number[]
  /** Pauses between bursts of requests, in seconds. */
  readonly rests: readonly number[]
  /** How often a short read is repeated; its median counts. */
  readonly rounds: number
}

export const FULL: Scale = {
  notes: 20_000,
  puts: 30_000,
  gets: 60_000,
  diffs: 1_000,
  fanouts: 500,
  filtered: 50_000,
  attachments: 100,
  pulled: 10_000,
  huge: 200_000,
  sizes: [1_000, 10_000, 100_000, 1_000_000],
  databases: 5_000,
  stored: 1_000_000,
  recovered: 120_000,
  devices: 400,
  crowd: 10_000,
  editsPerSecond: 200,
  editSeconds: 30,
  editRates: [25, 50, 100, 150, 200, 300],
  rests: [14, 300],
  rounds: 7,
}
export const QUICK: Scale = {
  notes: 5_000,
  puts: 6_000,
  gets: 10_000,
  diffs: 200,
  fanouts: 100,
  filtered: 10_000,
  attachments: 20,
  pulled: 2_000,
  huge: 20_000,
  sizes: [1_000, 10_000],
  databases: 200,
  stored: 20_000,
  recovered: 12_000,
  devices: 80,
  crowd: 400,
  editsPerSecond: 40,
  editSeconds: 10,
  editRates: [20, 40],
  rests: [14],
  rounds: 3,
}

/** A database that already contains notes. */
export interface Seeded {
  /** Its path, `/name`. */
  readonly path: string
  readonly notes: readonly Note[]
}

/** The context of a trial. */
export interface Bench {
  readonly peer: Peer
  readonly scale: Scale
  /** An empty database of its own. @returns its path, `/name` */
  emptyDatabase(): Promise<string>
  /** The database with `scale.notes` notes, filled at the first call. Trials only read it. */
  seeded(): Promise<Seeded>
}

export interface Figure {
  /** The name of the measurement, in one or two words. */
  readonly name: string
  readonly unit: string
  readonly value: number
  /** The rate of the load, for a figure that is measured at several, in operations per second. */
  readonly at?: number
}

export interface Trial {
  /** The word that selects the trial. */
  readonly name: string
  /** One line for `--help`. */
  readonly about: string
  /** Whether to run it only if its word is given: it takes long, or needs a fresh server. */
  readonly isAlone?: boolean
  /** @throws when an answer is wrong */
  run(bench: Bench): Promise<Figure[]>
}
