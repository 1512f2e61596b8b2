/** What the server said in its log. */
import { readFile } from 'node:fs/promises'
import type { ErrorName } from '../../src/core/errors.ts'
import { MEANT_FAILURES } from './oracle.ts'

/** An answer whose database goes while it is sent breaks off. */
const MEANT_BREAKS: readonly ErrorName[] = [...MEANT_FAILURES, 'no_database']

interface Line {
  readonly level: string
  readonly msg?: string
  readonly err?: { readonly code?: string }
}

export interface ServerLog {
  /** Lines of level error and fatal that no request should have been able to cause. */
  readonly faults: readonly string[]
  /** How many answers broke off for a reason that is meant. */
  readonly breaks: number
}

/** @throws when a line is no JSON */
export async function readServerLog(file: string): Promise<ServerLog> {
  const texts = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '')
  const severe = texts.filter((text) => /^\{"level":"(?:error|fatal)"/.test(text))
  for (const text of texts) JSON.parse(text)
  const isBreak = (text: string) => (JSON.parse(text) as Line).msg?.startsWith('an answer broke off') === true
  const isMeant = (text: string) => {
    const code = (JSON.parse(text) as Line).err?.code as ErrorName
    return (isBreak(text) ? MEANT_BREAKS : MEANT_FAILURES).includes(code)
  }
  return {
    faults: severe.filter((text) => !isMeant(text)),
    breaks: severe.filter((text) => isBreak(text) && isMeant(text)).length,
  }
}
