/** What the server said in its log. */
import { readFile } from 'node:fs/promises'
import type { ErrorName } from '../../src/core/errors.ts'
import { MEANT_FAILURES } from './oracle.ts'

interface Line {
  readonly level: string
  readonly msg?: string
  readonly id?: string
  readonly database?: string
  /** The row of a failure that has no other cause. */
  readonly error?: string
  readonly err?: { readonly code?: string }
}

export interface ServerLog {
  /** Lines of level error and fatal that no request should have been able to cause. */
  readonly faults: readonly string[]
  /** Ids of the requests whose answers broke off for a reason that is meant. */
  readonly brokenOff: ReadonlySet<string>
}

const QUIET: readonly string[] = ['info', 'warn']
/** What the server says of answers that it ends in their midst. */
const BREAKS = /^(?:an answer broke off|a request was cut)/

/** @throws when a line is no JSON */
export async function readServerLog(file: string): Promise<ServerLog> {
  const faults: string[] = []
  const brokenOff = new Set<string>()
  for (const text of (await readFile(file, 'utf8')).split('\n')) {
    if (text === '') continue
    const line = JSON.parse(text) as Line
    const { level, msg, id } = line
    const code = (line.error ?? line.err?.code) as ErrorName
    const isMeant = QUIET.includes(level) || MEANT_FAILURES.includes(code) || lacksMemory(line, code)
    if (!isMeant) faults.push(text)
    else if (id !== undefined && BREAKS.test(msg ?? '')) brokenOff.add(id)
  }
  return { faults, brokenOff }
}

/** Bodies for `_users` hold passwords and never go to a file: where memory is short they are refused. */
function lacksMemory({ database }: Line, code: ErrorName): boolean {
  return code === 'unavailable' && database === '_users'
}
