/** Checks whether the server knows of damage to what it stores, or of a file system that may lose it. */
import { oneLine } from '../core/errors.ts'
import { type Client, isAnswer, type Reply } from './doctor-client.ts'
import { adviceToUser, type Finding, fine, note, skipped, wrong } from './finding.ts'

/** @returns the server's answer about its health, which settee gives to server admins alone */
export function askForHealth(client: Client): Promise<Reply> {
  return client.ask({ method: 'GET', path: '/_up?deep=1' })
}

/** @param reply of {@link askForHealth}; a server in bad health answers 503 with the same members */
export function checkDamage(reply: Reply): Finding {
  if (isAnswer(reply) && (reply.status === 401 || reply.status === 403))
    return skipped('damage', 'Only server admins are told whether a disk has damaged something.')
  const fact = factOf(reply, 'scrub')
  if (fact === null) return skipped('damage', 'The server does not say whether a disk has damaged something.')
  if (fact.ok === true) {
    const unsafe = factOf(reply, 'free_space')?.unsafe_file_system
    if (typeof unsafe === 'string') return unsafeDisk(oneLine(unsafe))
    const last = typeof fact.last === 'string' ? `Last read at ${fact.last}.` : 'Not everything was read yet.'
    return fine('damage', `Nothing that is stored is known to be damaged. ${last}`)
  }
  const { length = 0 } = Array.isArray(fact.damaged) ? fact.damaged : []
  if (length === 0)
    return wrong(
      'damage',
      'The server could not read everything that it stores, or has not for a long time.',
      adviceToUser('Read the log of the server, and run settee check on its machine.'),
    )
  const where = length === 1 ? 'a database' : `${length} databases`
  return wrong(
    'damage',
    `A disk has damaged parts of ${where}.`,
    adviceToUser('Run settee check on the machine of the server: it lists what is damaged.'),
  )
}

function unsafeDisk(kind: string): Finding {
  return note(
    'damage',
    `The data folder is on a file system (${kind}) that may lose what was saved, or does not lock files.`,
    adviceToUser(
      'Move the data folder to a disk of the machine itself: settee needs one that syncs and locks.',
    ),
  )
}

interface HealthFact {
  readonly name?: unknown
  readonly ok?: unknown
  readonly last?: unknown
  readonly damaged?: unknown
  readonly unsafe_file_system?: unknown
}

/** A fact by its name; null if the server has none. */
function factOf(reply: Reply, name: string): HealthFact | null {
  const { facts } = (isAnswer(reply) ? (reply.json ?? {}) : {}) as { readonly facts?: unknown }
  if (!Array.isArray(facts)) return null
  return facts.find((fact: HealthFact | null) => fact?.name === name) ?? null
}
