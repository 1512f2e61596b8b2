import { readFileSync } from 'node:fs'

/** @returns how many files and sockets this process may have open; Infinity where the system does not say */
export function maxOpenFiles(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'latin1')
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Infinity)
  } catch {
    return Infinity
  }
}
