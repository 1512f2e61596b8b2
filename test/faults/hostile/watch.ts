/** The memory of a process while something is done to it. */
import { readFileSync } from 'node:fs'

/** @returns what ends the watch, and says by how many bytes the process has grown at most */
export function memoryOf(pid: number): { end(): number } {
  const before = residentBytes(pid)
  let most = before
  const look = () => {
    most = Math.max(most, residentBytes(pid))
  }
  const timer = setInterval(look, 20)
  return {
    end: () => {
      clearInterval(timer)
      look()
      return most - before
    },
  }
}

/** The resident memory of a process, in bytes. */
export function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'latin1')
  return 1024 * Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0)
}
