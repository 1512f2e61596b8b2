/** The rows of a database that are not what was written, by what they belong to. */
import { shown } from '../core/errors.ts'

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
  | { readonly kind: 'security' | 'counters' }

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

function describePart(part: DamagedPart): string {
  if (!('id' in part)) return part.kind === 'security' ? 'the security object' : 'its counters'
  const id = named('document', part.id)
  if (part.kind === 'attachment') return `${named('attachment', part.name)} of ${id}`
  return part.kind === 'revision' && part.rev !== null ? `revision ${shown(part.rev)} of ${id}` : id
}

function named(kind: string, name: string | null): string {
  return name === null ? `a ${kind}` : `the ${kind} ${shown(name)}`
}
