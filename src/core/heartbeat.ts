/**
 * Signs of life of a thread, in memory that another thread reads: how often its event loop has turned to messages, and
 * whether it is in a call that may take long for good reasons.
 *
 * One heartbeat for each thread, as each has modules of its own.
 */
import { readlinkSync } from 'node:fs'
import { worked } from './rest.ts'

/** Places in the memory. */
const TURNS = 0
const LAST_CALL = 1
const LONG_CALLS = 2
const SYSTEM_ID = 3
const SIZE = 4

let own = new Int32Array(new SharedArrayBuffer(4 * SIZE))

/** What a thread's heartbeat shows. */
export interface Pulse {
  /** Turns to messages so far; wraps around. */
  readonly turns: number
  /** The newest call that has reached the thread, by its number's lowest 32 bits; see {@link isLater}. */
  readonly lastCall: number
  /** Whether the thread is in a {@link longCall}. */
  readonly isInLongCall: boolean
  /** The operating system's number of the thread; 0 where it cannot be known, or the thread has not begun. */
  readonly systemId: number
}

/** @returns memory for the heartbeat of a thread, which {@link joinHeartbeat joins} it */
export function heartbeatMemory(): SharedArrayBuffer {
  return new SharedArrayBuffer(4 * SIZE)
}

/** Makes another thread's memory this thread's heartbeat, and tells the thread's number there. */
export function joinHeartbeat(memory: SharedArrayBuffer = new SharedArrayBuffer(4 * SIZE)): void {
  own = new Int32Array(memory)
  worked()
  Atomics.store(own, SYSTEM_ID, systemThreadId())
}

/** The event loop has turned to messages, some of which may be calls. */
export function beat(messages: readonly { readonly type: string; readonly call?: number }[]): void {
  Atomics.add(own, TURNS, 1)
  worked()
  for (const { call } of messages) {
    if (call !== undefined && isLater(call, Atomics.load(own, LAST_CALL))) Atomics.store(own, LAST_CALL, call)
  }
}

/** Whether a call came after another, by their numbers, which count up and wrap around at 32 bits. */
export function isLater(call: number, other: number): boolean {
  return ((call - other) | 0) > 0
}

/**
 * Runs one statement that may hold the thread for more than 10 s for good reasons, such as SQLite's `integrity_check`
 * or the making of an index: the thread is not ended meanwhile.
 */
export function longCall<T>(statement: () => T): T {
  Atomics.add(own, LONG_CALLS, 1)
  try {
    return statement()
  } finally {
    Atomics.sub(own, LONG_CALLS, 1)
  }
}

/** @param memory of another thread's heartbeat */
export function readPulse(memory: SharedArrayBuffer): Pulse {
  const cells = new Int32Array(memory)
  return {
    turns: Atomics.load(cells, TURNS),
    lastCall: Atomics.load(cells, LAST_CALL),
    isInLongCall: Atomics.load(cells, LONG_CALLS) > 0,
    systemId: Atomics.load(cells, SYSTEM_ID),
  }
}

/** Linux tells it in /proc; elsewhere 0. */
function systemThreadId(): number {
  try {
    const [, id] = /task\/(\d+)$/.exec(readlinkSync('/proc/thread-self')) ?? []
    return Number(id ?? 0)
  } catch {
    return 0
  }
}
