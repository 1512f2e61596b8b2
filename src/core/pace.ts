/** Work that nobody waits for, at the pace that leaves the machine to others. */

/** How long it works at a stretch, in ms. */
const STRETCH_MS = 10
/** How long it rests at the most, in ms, whatever the stretch before took. */
const LONGEST_REST_MS = 50

const NEVER = new Int32Array(new SharedArrayBuffer(4))

/** Holds its thread still between stretches of work; for threads that have nothing else to do. */
export class Pace {
  #since = performance.now()

  /** Asked between two pieces of work: rests as long as it worked since it last did. */
  rest(): void {
    const worked = performance.now() - this.#since
    if (worked < STRETCH_MS) return
    Atomics.wait(NEVER, 0, 0, Math.min(worked, LONGEST_REST_MS))
    this.#since = performance.now()
  }
}
