/**
 * What a client was promised: each of its acts is marked in the record when it begins and when it is acknowledged.
 * So at every point of the record it is known what must be stored, and what may be since its act was under way.
 */
import { openSync, writeSync } from 'node:fs'
import type { RecordedEvent } from './recorder.ts'

/** A thing by its key, such as `doc|notes@1|a`, and its content as text; null: it is not there. */
export type Sets = readonly (readonly [key: string, value: string | null])[]

type LastKnownSequence =
  | { readonly begin: number; readonly sets: Sets }
  | { readonly ack: number }
  | { readonly seen: string; readonly seq: number }
  | { readonly problem: string }
  | { readonly counted: string; readonly number: number }

/** Leaves marks, in the process that is recorded. */
export class MarkWriter {
  readonly #file: number
  /** Numbers of acts are of the whole record, to which several processes may have contributed. */
  #last = process.pid * 1_000_000

  /** @param path the recorder's */
  constructor(path: string) {
    this.#file = openSync(path, 'a')
  }

  /** Marks the beginning of an act that sets these things, runs it, and marks that it was acknowledged. */
  async act<R>(sets: Sets, work: () => Promise<R>): Promise<R> {
    this.begun(sets)
    const act = this.#last
    const result = await work()
    this.#mark({ ack: act })
    return result
  }

  /** Marks that a database showed this sequence number: it must never show a smaller one. */
  seen(database: string, seq: number): void {
    this.#mark({ seen: database, seq })
  }

  /** Marks what may be stored from now on. */
  begun(sets: Sets): void {
    this.#last += 1
    this.#mark({ begin: this.#last, sets })
  }

  /** Marks what is stored for certain from now on. */
  told(sets: Sets): void {
    this.begun(sets)
    this.#mark({ ack: this.#last })
  }

  /** Marks that something is not as it should be. */
  problem(problem: string): void {
    this.#mark({ problem })
  }

  /** Marks a number for whoever reads the test's output. */
  count(counted: string, number: number): void {
    this.#mark({ counted, number })
  }

  /** Arms a fault, or disarms it; see recorder.c. @returns whether the fault had struck, for `!disarm` */
  command(text: string): boolean {
    try {
      writeSync(this.#file, text)
      return false
    } catch {
      return true
    }
  }

  #mark(mark: LastKnownSequence): void {
    writeSync(this.#file, JSON.stringify(mark))
  }
}

interface Value {
  readonly value: string | null
  /** Numbers of events: from `begin` on it may be stored; from `ack` on nothing older may. */
  readonly begin: number
  ack: number
}

export class Ledger {
  /** The points just after an acknowledgement, as numbers of events. */
  readonly acknowledged: number[] = []
  readonly problems: string[] = []
  readonly counts: { readonly counted: string; readonly number: number }[] = []
  readonly #values = new Map<string, Value[]>()
  readonly #seen: { readonly database: string; readonly seq: number; readonly at: number }[] = []

  /** Reads the marks of a record. */
  constructor(events: readonly RecordedEvent[]) {
    const open = new Map<number, Value[]>()
    events.forEach((event, at) => {
      if (event.kind !== 'mark') return
      const mark = JSON.parse(event.text) as LastKnownSequence
      if ('begin' in mark) open.set(mark.begin, this.#begun(mark.sets, at))
      else if ('seen' in mark) this.#seen.push({ database: mark.seen, seq: mark.seq, at })
      else if ('problem' in mark) this.problems.push(mark.problem)
      else if ('counted' in mark) this.counts.push(mark)
      else {
        for (const value of open.get(mark.ack) ?? []) value.ack = at
        this.acknowledged.push(at + 1)
      }
    })
  }

  #begun(sets: Sets, at: number): Value[] {
    return sets.map(([key, value]) => {
      const made: Value = { value, begin: at, ack: Number.POSITIVE_INFINITY }
      this.#values.set(key, [...(this.#values.get(key) ?? []), made])
      return made
    })
  }

  /** @returns what may be stored of a thing when the power goes after so many events: mostly one value */
  allowed(key: string, events: number): (string | null)[] {
    const begun = (this.#values.get(key) ?? []).filter(({ begin }) => begin < events)
    const newest = begun.findLastIndex(({ ack }) => ack < events)
    const allowed = begun.slice(Math.max(newest, 0)).map(({ value }) => value)
    return newest === -1 ? [null, ...allowed] : allowed
  }

  /** @returns every key that begins so and was set in the record, whenever */
  keys(prefix: string): string[] {
    return [...this.#values.keys()].filter((key) => key.startsWith(prefix))
  }

  /** @returns the greatest sequence number that a database had shown by then */
  shown(database: string, events: number): number {
    const seqs = this.#seen.filter((seen) => seen.database === database && seen.at < events)
    return Math.max(0, ...seqs.map(({ seq }) => seq))
  }
}
