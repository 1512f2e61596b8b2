/**
 * Passes documents as an engine over a network would: a callback sees only what it has declared. What else it reads is a
 * miss, which ends the call; it is called again with that part. Each callback is called once more with a fresh document,
 * and must give the same answer.
 */
import { inspect, isDeepStrictEqual } from 'node:util'
import { formatRev, parseRev } from '../../../src/revisions/rev.ts'
import type { HistoryReadSet } from '../../../src/storage/history-store.ts'
import type { RevisionPath } from '../../../src/storage/read-set.ts'
import { type Disk, type Part, type WithDocument, withDocument } from './document-scope.ts'
import type { StoredDoc } from './state.ts'

/** More misses in one call mean that a callback never ends. */
const MOST_MISSES = 20_000
/** Frames of a stack, so that it shows who has called the engine. */
const FRAMES = 60

/** Thrown where a callback reads a part that is not loaded. Nothing but the engine may catch it. */
class NotLoaded extends Error {
  readonly part: string

  constructor(part: string) {
    super(`not loaded: ${part}`)
    this.part = part
  }
}

/** The misses of an engine, by the places in src/ that had not declared what they read. */
export class Misses {
  readonly #counts = new Map<string, number>()

  get total(): number {
    let total = 0
    for (const count of this.#counts.values()) total += count
    return total
  }

  note(part: string, stack: string): void {
    const site = `${part.split(' ')[0]}: ${siteOf(stack)}`
    this.#counts.set(site, (this.#counts.get(site) ?? 0) + 1)
  }

  /** The sites with their counts, the most frequent first. Begins to count anew. */
  take(): readonly string[] {
    const sites = [...this.#counts].sort(([, a], [, b]) => b - a)
    this.#counts.clear()
    return sites.map(([site, count]) => `${count} x ${site}`)
  }
}

/** The functions of src/ in a stack, the innermost first. */
function siteOf(stack: string): string {
  const frames = stack.split('\n').flatMap((frame) => {
    const [, name, place] = /at (?:(\S+) \()?.*\/src\/(\S+?:\d+):\d+/.exec(frame) ?? []
    return place === undefined ? [] : `${name ?? ''} ${place}`.trim()
  })
  return frames.join(' < ')
}

/** @param misses counts what was not declared; without it nobody asks */
export function strictDocuments(misses?: Misses): WithDocument {
  return (doc, disk, readSet, use) => {
    if (doc === undefined) return twice(() => use(null))
    const isDeclared = declaration(doc, readSet)
    const loaded = new Set<string>()
    const onRead = (part: Part) => {
      const name = 'rev' in part ? `${part.kind} ${part.rev}` : part.kind
      if (!isDeclared(part) && !loaded.has(name)) throw new NotLoaded(name)
    }
    const { countChars: _, ...uncounted } = disk
    const first: Disk = { ...uncounted, onRead }
    const last: Disk = { ...disk, onRead }
    return twice((isLast) => {
      while (loaded.size < MOST_MISSES) {
        try {
          return withStacks(misses === undefined ? 0 : FRAMES, () =>
            withDocument(doc, isLast ? last : first, readSet, use),
          )
        } catch (thrown) {
          if (!(thrown instanceof NotLoaded)) throw thrown
          misses?.note(thrown.part, thrown.stack ?? '')
          loaded.add(thrown.part)
        }
      }
      throw new RangeError(`A callback had ${MOST_MISSES} misses on the document ${doc.id}.`)
    })
  }
}

function withStacks<R>(frames: number, call: () => R): R {
  const before = Error.stackTraceLimit
  Error.stackTraceLimit = frames
  try {
    return call()
  } finally {
    Error.stackTraceLimit = before
  }
}

/** @throws Error if the second call has another outcome */
function twice<R>(call: (isLast: boolean) => R): R {
  const first = outcomeOf(() => call(false))
  const second = outcomeOf(() => call(true))
  if (!isDeepStrictEqual(first, second)) {
    throw new Error(`A callback is not repeatable:\n${inspect(first)}\n${inspect(second)}`)
  }
  if ('thrown' in second) throw second.thrown
  return second.result
}

type CallOutcome<R> = { readonly result: R } | { readonly thrown: unknown }

function outcomeOf<R>(call: () => R): CallOutcome<R> {
  try {
    return { result: call() }
  } catch (thrown) {
    return { thrown }
  }
}

/** Whether a part of a document was declared: src/storage/read-set.ts. */
function declaration(
  { rev: winner, rows }: StoredDoc,
  readSet: HistoryReadSet = {},
): (part: Part) => boolean {
  const { body, bodies, branches, ancestry, revs = [], attachments = [] } = readSet
  const { ancestryOf = [], ancestryFrom = Number.POSITIVE_INFINITY, nearest = [] } = readSet
  const isLeaf = (rev: string) => rows.get(rev)?.leaf === true
  const hasContent = (rev: string) =>
    (body === true && rev === winner) ||
    (bodies === true && isLeaf(rev)) ||
    revs.includes(rev) ||
    nearest.some((path) => isNearest(rows, path, rev))
  return (part) => {
    switch (part.kind) {
      case 'branches':
        return branches === true
      case 'ancestry':
        return (
          ancestry === 'leaves' ||
          (ancestry === 'winner' && part.rev === winner) ||
          parseRev(part.rev).pos >= ancestryFrom ||
          ancestryOf.includes(part.rev)
        )
      case 'content':
        return hasContent(part.rev)
      case 'attachments':
        return hasContent(part.rev) || attachments.includes(part.rev)
      case 'deletion':
        return (
          part.rev === winner ||
          hasContent(part.rev) ||
          readSet.revisions === true ||
          (branches === true && isLeaf(part.rev))
        )
      case 'revisions':
        return readSet.revisions === true
      case 'retained':
        return readSet.retained === true
      case 'versions':
        return readSet.versions !== undefined
    }
  }
}

/** Whether a revision is on a path, and no newer one on it has a stored body. */
function isNearest(rows: StoredDoc['rows'], { pos, ids }: RevisionPath, rev: string): boolean {
  const revs = ids.map((id, at) => formatRev(pos - at, id))
  const newest = revs.findIndex((one) => typeof rows.get(one)?.body === 'string' && !rows.get(one)?.isKept)
  const at = revs.indexOf(rev)
  return at >= 0 && (newest < 0 || at <= newest)
}
