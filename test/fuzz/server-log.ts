/** What the server said in its log. */
import { readFile } from 'node:fs/promises'
import type { ErrorName } from '../../src/core/errors.ts'
import { MEANT_FAILURES } from './oracle.ts'

interface Line {
  readonly level: string
  readonly msg?: string
  readonly id?: string
  readonly err?: { readonly code?: string; readonly stack?: string }
}

export interface ServerLog {
  /** Lines of level error and fatal that no request should have been able to cause. */
  readonly faults: readonly string[]
  /** Ids of the requests whose answers broke off for a reason that is meant. */
  readonly brokenOff: ReadonlySet<string>
}

/** @throws when a line is no JSON */
export async function readServerLog(file: string): Promise<ServerLog> {
  const faults: string[] = []
  const brokenOff = new Set<string>()
  for (const text of (await readFile(file, 'utf8')).split('\n')) {
    if (text === '') continue
    const { level, msg, id, err } = JSON.parse(text) as Line
    const isMeant = level === 'warn' || MEANT_FAILURES.includes(err?.code as ErrorName) || lacksMemory(err)
    if (!isMeant) faults.push(text)
    else if (id !== undefined && msg?.startsWith('an answer broke off')) brokenOff.add(id)
  }
  return { faults, brokenOff }
}

/** Bodies for `_users` hold passwords and never go to a file: where memory is short they are refused. */
function lacksMemory(err: Line['err']): boolean {
  return err?.code === 'unavailable' && (err.stack?.includes('BodyCollector') ?? false)
}
