/** The memory of a process, from /proc: Linux only. */
import { readFileSync, writeFileSync } from 'node:fs'

/** @returns the memory of a process in bytes (`VmRSS`), or its peak since the last {@link forgetPeak} (`VmHWM`) */
export function memoryOf(pid: number, row: 'VmRSS' | 'VmHWM' = 'VmRSS'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(new RegExp(`^${row}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024
}

/** Resets the peak. */
export function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5')
}
