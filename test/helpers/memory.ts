/** The memory of a process, from /proc: Linux only. */
import { readFileSync, writeFileSync } from 'node:fs'

/** @returns bytes of memory that a process takes (`VmRSS`), or the most since the last {@link forgetPeak} (`VmHWM`) */
export function memoryOf(pid: number, row: 'VmRSS' | 'VmHWM' = 'VmRSS'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(new RegExp(`^${row}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024
}

/** Begins a new peak. */
export function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5')
}
