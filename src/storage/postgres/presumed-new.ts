/**
 * The presumption that the documents of a group are new. Then they are decided on without being read, which saves one of two
 * round trips. It needs not be right: the functions of write-functions.ts store nothing if one of them exists, or if the settings
 * have changed, and the group is decided again on what is read.
 */
import type { StoreView } from '../engine.ts'
import type { DatabaseSettings } from './database-view.ts'
import { NotLoaded } from './loaded-document.ts'

/** So many loads must find new documents alone after a presumption was wrong, since that costs a write. */
const LOADS_AFTER_ERROR = 8

/** Of one open database: documents are presumed to be new after those before them were. */
export class NewDocuments {
  /** How many loads are missing; at most 0 once there were enough. */
  #missingLoads = 1

  get arePresumed(): boolean {
    return this.#missingLoads <= 0
  }

  /** Notes what a load has found. @param wasPresumed whether they were presumed to be new before */
  note(areNew: boolean, wasPresumed: boolean): void {
    if (areNew) this.#missingLoads -= 1
    else this.#missingLoads = wasPresumed ? LOADS_AFTER_ERROR : Math.max(this.#missingLoads, 1)
  }
}

/** A view for a decision before anything is read: its settings are compared by the write, and its counters are not known. */
export function viewOfSettings(settings: DatabaseSettings): StoreView {
  return {
    ...settings,
    get updateSeq(): number {
      throw new NotLoaded()
    },
    get docCount(): number {
      throw new NotLoaded()
    },
    get deletedCount(): number {
      throw new NotLoaded()
    },
  }
}
