import { advise } from '../advice.ts'
import { type Answer, headerOf } from '../client.ts'
import { type Finding, fine, note } from '../finding.ts'
import type { Scene } from '../scene.ts'

/** LiveSync reads the version from the header, and asks older servers for settings by other names. */
const LEAST = [3, 2, 0] as const

/** Judges the header `Server` as LiveSync reads it. */
export function judgeVersion(answer: Answer, { stage, quote }: Scene): Finding {
  const server = headerOf(answer, 'server')
  const found = /CouchDB\/(\d+)\.(\d+)\.(\d+)/.exec(server)
  if (found !== null && isEnough(found.slice(1).map(Number)))
    return fine('version', `Server: ${quote(server)}.`)
  const says = server === '' ? 'There is no header Server' : `The header Server says ${quote(server)}`
  const lost = `${says} and no CouchDB of 3.2 or later: LiveSync takes it for an older one.`
  // A proxy that puts itself there hides the server; without one it is the server's own word.
  const isHidden = found === null && stage.server !== 'PouchDB Server'
  return note('version', lost, isHidden ? advise('serverHeader', stage, 'proxy') : [])
}

function isEnough(version: readonly number[]): boolean {
  for (const [at, least] of LEAST.entries()) {
    const part = version[at] ?? 0
    if (part !== least) return part > least
  }
  return true
}
