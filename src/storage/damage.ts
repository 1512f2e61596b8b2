/** The rows of a database that are not what was written: their errors, and what they belong to. */
import { CouchError, shown } from '../core/errors.ts'
import type { SecurityObject } from '../core/types.ts'

/** A part of a document, by its id, or of the whole database. null: the damage hides it. */
export type DamagedPart =
  | { readonly kind: 'document' | 'local'; readonly id: string | null }
  | { readonly kind: 'revision'; readonly id: string | null; readonly rev: string | null }
  | {
      readonly kind: 'attachment'
      readonly id: string | null
      readonly rev: string | null
      readonly name: string | null
    }
  /** `file`: pages of it cannot be read, and hide what they hold. */
  | { readonly kind: 'security' | 'counters' | 'purges' | 'index' | 'file' }

/** The damage of a database. All its other rows are what was written. */
export interface Damage {
  readonly count: number
  /** The first parts, {@link MAX_NAMED_PARTS} at most. */
  readonly parts: readonly DamagedPart[]
}

export const MAX_NAMED_PARTS = 100

/** Collects damaged parts, each once. */
export class FoundDamage {
  readonly #parts = new Map<string, DamagedPart>()
  #beyond = 0

  add(part: DamagedPart): void {
    const key = JSON.stringify(part)
    if (this.#parts.has(key)) return
    if (this.#parts.size < MAX_NAMED_PARTS) this.#parts.set(key, part)
    else this.#beyond += 1
  }

  /** Adds what was found before, or elsewhere. */
  addAll({ count, parts }: Damage): void {
    for (const part of parts) this.add(part)
    this.#beyond += count - parts.length
  }

  /** null: nothing is damaged. */
  get found(): Damage | null {
    const parts = [...this.#parts.values()]
    return parts.length === 0 ? null : { count: parts.length + this.#beyond, parts }
  }
}

/** @returns one line for people, such as `the attachment "a.png" of "note" and 2 more` */
export function describeDamage({ count, parts }: Damage): string {
  const [first] = parts
  if (first === undefined) return `${count} parts`
  return count === 1 ? describePart(first) : `${describePart(first)} and ${count - 1} more`
}

const OF_DATABASE = {
  security: 'the security object',
  counters: 'its counters',
  purges: 'its list of purges',
  index: 'an index',
  file: 'pages of its file',
} as const

/** @returns such as `revision 2-a of the document "note"` */
export function describePart(part: DamagedPart): string {
  if (!('id' in part)) return OF_DATABASE[part.kind]
  const id = named('document', part.id)
  if (part.kind === 'attachment') return `${named('attachment', part.name)} of ${id}`
  return part.kind === 'revision' && part.rev !== null ? `revision ${shown(part.rev)} of ${id}` : id
}

function named(kind: string, name: string | null): string {
  return name === null ? `a ${kind}` : `the ${kind} ${shown(name)}`
}

/** Makes the errors for what does not say what was written, and reports them. */
export class DamageReports {
  readonly #name: string
  readonly #report: (error: CouchError) => void
  readonly #areDevicesAsked: boolean

  /** @param database its name @param options `areDevicesAsked`: whether devices are asked for damaged leaves */
  constructor(
    database: string,
    { report, areDevicesAsked }: { report(error: CouchError): void; readonly areDevicesAsked: boolean },
  ) {
    this.#name = database
    this.#report = report
    this.#areDevicesAsked = areDevicesAsked
  }

  damagedDocument(id?: string, rev?: string): CouchError {
    const which = id === undefined ? 'A document' : `The document ${shown(String(id))}`
    const revision = rev === undefined ? '' : ` (revision ${shown(String(rev))})`
    return this.#reported(
      `${which} of the database ${this.#name}${revision} is damaged: the disk has changed what was stored. ` +
        `${this.#areDevicesAsked ? 'A device that has it restores it when it syncs; or restore' : 'Restore'} the database from a backup, or save the document again. ` +
        'All other documents still work.',
    )
  }

  /** The error for a document whose row does not say what was written, over PostgreSQL. */
  damagedRow(id: string): CouchError {
    return this.#reported(
      `The document ${shown(id)} of the database ${this.#name} is damaged: the disk has changed what was stored. ` +
        'If the rest of it proves what it was, it is made again in a moment. If this error stays, restore the database from a backup, ' +
        'or give the document up: a device that has it sends it again. All other documents still work.',
    )
  }

  damagedContent(): CouchError {
    return this.#reported(
      `An attachment in the database ${this.#name} is damaged: the disk has changed what was stored. ` +
        'Upload it again, or restore the database from a backup. All other attachments still work.',
    )
  }

  damagedSecurity(): CouchError {
    return this.#reported(
      `The security object of the database ${this.#name} is damaged: the disk has changed what was stored. ` +
        'Only server admins have access until one of them sets it again.',
    )
  }

  damagedCounters(): CouchError {
    return this.#reported(
      `Counters or settings of the database ${this.#name} were damaged: the disk had changed what was stored. ` +
        'What can be counted was counted anew, and the limits of revisions and purges have their defaults. Check the disk.',
    )
  }

  #reported(reason: string): CouchError {
    const error = new CouchError('damaged_document', reason)
    this.#report(error)
    return error
  }
}

/** In the place of a damaged security object: nobody knows whom it let in, so that only server admins are let in. */
export const ONLY_ADMINS: SecurityObject = {
  admins: { names: [], roles: ['_admin'] },
  members: { names: [], roles: ['_admin'] },
}
