/**
 * The leaves of a database that are known to be damaged, so that devices are asked for them. They are a column of the database's row,
 * which all nodes read with its settings.
 */
import { setImmediate as turn } from 'node:timers/promises'
import type { Connections } from './connections.ts'
import type { DatabaseViews } from './database-view.ts'
import { type Leaf, leavesOf, MAX_LEAVES } from './leaf-list.ts'
import { textOf } from './stored-text.ts'

/** Leaves that are noted of those that share one content: one that brings it again mends it for all. */
const MAX_SHARING = 100
/** Other nodes that change them at the same time. */
const MAX_TRIES = 20

const WRITE = {
  name: 'write_damaged_leaves',
  text: `UPDATE database SET damaged_leaves = $4, damaged_at = coalesce($5, damaged_at),
      settings_version = settings_version + 1
    WHERE db = $1 AND incarnation = $2 AND damaged_leaves IS NOT DISTINCT FROM $3 RETURNING db`,
}

const OF_CONTENT = {
  name: 'leaves_of_content',
  text: `SELECT u.id, u.rev FROM blob_use u WHERE u.db = $1 AND u.blob = $2 AND (
      EXISTS (SELECT FROM doc d WHERE d.db = $1 AND d.id = u.id AND d.rev = u.rev)
      OR EXISTS (SELECT FROM revision r WHERE r.db = $1 AND r.id = u.id AND r.rev = u.rev AND r.leaf))
    ORDER BY u.id, u.rev LIMIT ${MAX_SHARING}`,
}

const NONE: ReadonlySet<string> = new Set()

export interface NotedLeavesOptions {
  readonly connections: Pick<Connections, 'read' | 'write'>
  readonly views: DatabaseViews
  /** The time, in ms since 1970. */
  now(): number
  /** Called when new ones are stored. */
  onNoted?(): void
  /** Called when some are whole again. @param rest how many are not */
  onRestored?(leaves: number, rest: number): void
}

export class NotedLeaves {
  readonly #options: NotedLeavesOptions
  readonly #added: Leaf[] = []
  readonly #contents = new Set<number>()
  readonly #restored: Leaf[] = []
  #work: Promise<void> | null = null

  constructor(options: NotedLeavesOptions) {
    this.#options = options
  }

  /** The damaged leaves of a document. */
  of(id: string): ReadonlySet<string> {
    return this.#options.views.damaged.leaves.get(id) ?? NONE
  }

  /** Notes a leaf that is damaged. */
  note(id: string, rev: string): void {
    if (this.of(id).has(rev) || this.#added.length >= MAX_LEAVES) return
    this.#added.push([id, rev])
    this.#begin()
  }

  /** As {@link note}, of the leaves whose attachments have a content. */
  noteContent(blob: number): void {
    if (this.#contents.size >= MAX_LEAVES) return
    this.#contents.add(blob)
    this.#begin()
  }

  /** Notes that leaves were written again, or are none any more. */
  restored(leaves: readonly Leaf[]): void {
    if (leaves.length === 0) return
    this.#restored.push(...leaves)
    this.#begin()
  }

  /** Resolves when all are stored, or cannot be. */
  async drained(): Promise<void> {
    while (this.#work !== null) await this.#work
  }

  /** What cannot be stored now is noted again when it is read or written again. */
  #begin(): void {
    this.#work ??= this.#run()
      .catch(() => undefined)
      .finally(() => {
        this.#work = null
        if (this.#added.length + this.#contents.size + this.#restored.length > 0) this.#begin()
      })
  }

  async #run(): Promise<void> {
    // A list may have many.
    await turn()
    const [added, restored, contents] = [this.#added.splice(0), this.#restored.splice(0), [...this.#contents]]
    this.#contents.clear()
    for (const blob of contents) added.push(...(await this.#leavesOf(blob)))
    await this.#store(added, restored)
  }

  async #leavesOf(blob: number): Promise<Leaf[]> {
    const { connections, views } = this.#options
    const found = await connections.read<Leaf>({ ...OF_CONTENT, values: [views.key[0], blob] })
    return found.map(([id, rev]) => [textOf(id), textOf(rev)])
  }

  async #store(added: readonly Leaf[], restored: readonly Leaf[]): Promise<void> {
    const { connections, views, now, onNoted, onRestored } = this.#options
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const { stored } = views.damaged
      const next = new Map(leavesOf(stored).map((leaf) => [JSON.stringify(leaf), leaf]))
      const whole = restored.filter((leaf) => next.delete(JSON.stringify(leaf))).length
      const before = next.size
      for (const leaf of added) if (next.size < MAX_LEAVES) next.set(JSON.stringify(leaf), leaf)
      const isNew = next.size > before
      if (whole === 0 && !isNew) return
      const text = next.size === 0 ? null : JSON.stringify([...next.values()])
      const values = [...views.key, stored, text, isNew ? now() : null]
      const written = await connections.write({ ...WRITE, values })
      await views.refresh()
      if (written.length === 0) continue
      if (isNew) onNoted?.()
      if (whole > 0) onRestored?.(whole, next.size)
      return
    }
  }
}
