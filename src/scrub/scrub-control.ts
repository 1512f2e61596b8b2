/** Checks for the command line: `settee check`. */
import type { CheckOutcome, Scrub, ScrubProgress } from './scrub.ts'

export interface CheckControl {
  /**
   * Reads databases, and finds what is damaged.
   * @param request names; null: all databases. `repair`: what has a good copy is stored again
   * @param signal aborts when the caller has disconnected; the check then ends, and one of all databases goes on as a
   *   scheduled one
   * @throws conflict, not_found, unavailable, internal_server_error
   */
  checkDatabases(
    request: { readonly databases: readonly string[] | null; readonly repair: boolean },
    onProgress?: (progress: ScrubProgress) => void,
    signal?: AbortSignal,
  ): Promise<CheckOutcome>
}

export function localCheckControl(scrub: Scrub): CheckControl {
  return {
    checkDatabases: ({ databases, repair }, onProgress, signal) =>
      scrub.check({ names: databases, repairs: repair }, onProgress, signal),
  }
}
