/**
 * Optimistic writes: the documents of a group are assumed to be new and are decided on without being read, which saves one of
 * two round trips. If the assumption is wrong, the functions of write-functions.ts store nothing, as when the settings have
 * changed, and the group is decided again on what is read.
 */
import type { StoreView } from '../engine.ts'
import type { DatabaseSettings } from './database-view.ts'
import { NotLoaded } from './loaded-document.ts'

/** Loads that must find only new documents after a wrong assumption, which costs a write. */
const LOADS_AFTER_ERROR = 8

/** Decides for one open database whether writes are optimistic: they are after loads that have found only new documents. */
export class OptimisticWrites {
  /** How many such loads are still needed; at most 0 once there were enough. */
  #loadsUntilOptimistic = 1

  get isOptimistic(): boolean {
    return this.#loadsUntilOptimistic <= 0
  }

  /** Notes what a load has found. @param wasOptimistic whether they were assumed to be new before */
  note(areNew: boolean, wasOptimistic: boolean): void {
    if (areNew) this.#loadsUntilOptimistic -= 1
    else
      this.#loadsUntilOptimistic = wasOptimistic ? LOADS_AFTER_ERROR : Math.max(this.#loadsUntilOptimistic, 1)
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
