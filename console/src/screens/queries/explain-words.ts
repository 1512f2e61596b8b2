/** The answer of `_explain` in words. Pure. */
import { en } from '../../strings/en.ts'
import { shortText } from './exact-values.ts'

interface ShownIndex {
  readonly ddoc: string | null
  readonly name: string
  readonly type: string
  readonly def: { readonly fields: readonly Readonly<Record<string, unknown>>[] }
}

export interface Explanation {
  readonly index: ShownIndex | null
  readonly mrargs?: {
    readonly start_key: unknown
    readonly end_key: unknown
    readonly direction: string
    readonly partition: string | null
  }
  readonly covering?: boolean
  readonly index_candidates: readonly {
    readonly index: ShownIndex
    readonly analysis: { readonly usable: boolean; readonly reasons: readonly { readonly name: string }[] }
  }[]
  readonly selector_hints: readonly {
    readonly indexable_fields: readonly string[]
    readonly unindexable_fields: readonly string[]
  }[]
}

/** The end of an index, as the server writes it. */
const MAX = '<MAX>'
/** Characters of a key, and indexes that were not taken, that are shown. */
const MAX_KEY = 60
const MAX_OTHERS = 10

interface ExplainedQuery {
  /** Whether every document is read. */
  readonly isFullScan: boolean
  /** Sentences, in the order of the work. */
  readonly steps: readonly string[]
  /** Indexes that were not taken, and why. */
  readonly others: readonly { readonly name: string; readonly reason: string }[]
}

const { words } = en.queries.explain

/** What the server would do for a query. */
export function explainedQuery(explanation: Explanation): ExplainedQuery {
  const { index, mrargs, index_candidates: candidates } = explanation
  const partition = mrargs?.partition ?? null
  const isFullScan = index !== null && index.type === 'special' && !isRange(mrargs) && partition === null
  const hints = explanation.selector_hints[0]
  const checked = index === null ? [] : uncovered(index, hints)
  const steps = [
    ...(index === null ? [words.noIndex] : [readStep(index, mrargs, isFullScan)]),
    ...(partition === null ? [] : [words.partition(partition)]),
    ...(mrargs?.direction === 'rev' ? [words.backwards] : []),
    ...(explanation.covering === true
      ? [words.covering]
      : checked.length > 0
        ? [words.checks(checked.map((name) => `“${name}”`).join(', '))]
        : []),
  ]
  const others = candidates
    .filter((each) => each.index.type !== 'special')
    .slice(0, MAX_OTHERS)
    .map((each) => ({ name: nameOf(each.index), reason: reasonOf(each.analysis.reasons[0]?.name) }))
  return { isFullScan, steps, others }
}

/** The name of an index for people: generated names are shortened, and equal ones of both parts shown once. */
export function nameOf({ ddoc, name }: Pick<ShownIndex, 'ddoc' | 'name'>): string {
  const parts = [ddoc?.replace(/^_design\//, '') ?? name, name]
  return [...new Set(parts.map(shortName))].join(' / ')
}

/** The server names an index by a digest when nobody has named it. */
function shortName(name: string): string {
  return /^[0-9a-f]{40}$/.test(name) ? `${name.slice(0, 8)}…` : name
}

export function fieldsOfIndex({ def }: Pick<ShownIndex, 'def'>): readonly string[] {
  return def.fields.flatMap((field) => Object.keys(field))
}

function readStep(index: ShownIndex, mrargs: Explanation['mrargs'], isFullScan: boolean): string {
  if (isFullScan) return words.fullScan
  const [from, to] = [keyText(mrargs?.start_key), keyText(mrargs?.end_key)]
  if (index.type === 'special') return words.idRange(from, to)
  const name = nameOf(index)
  const fields = fieldsOfIndex(index).join(', ')
  if (!isRange(mrargs)) return words.wholeIndex(name, fields)
  return from === to ? words.indexKey(name, fields, from) : words.indexRange(name, fields, from, to)
}

/** Whether only a part of the index is read. */
function isRange(mrargs: Explanation['mrargs']): boolean {
  return [mrargs?.start_key, mrargs?.end_key].some((key) => {
    const values = Array.isArray(key) ? (key as unknown[]) : [key]
    return values.some((value) => value !== null && value !== undefined && value !== MAX)
  })
}

function keyText(key: unknown): string {
  const values = Array.isArray(key) ? (key as unknown[]) : [key]
  const shown = values.filter((value) => value !== null && value !== undefined && value !== MAX)
  if (shown.length === 0) return words.end
  const [only] = shown
  if (shown.length === 1 && typeof only === 'string') return `“${shortText(only, MAX_KEY)}”`
  return shortText(shown.length === 1 ? only : shown, MAX_KEY)
}

/** Fields of the selector that the index does not have: they are checked in the documents. */
function uncovered(index: ShownIndex, hints: Explanation['selector_hints'][number] | undefined): string[] {
  if (hints === undefined) return []
  const known = new Set(index.type === 'special' ? ['_id'] : fieldsOfIndex(index))
  return [...hints.indexable_fields.filter((field) => !known.has(field)), ...hints.unindexable_fields]
}

function reasonOf(name: string | undefined): string {
  const reasons: Readonly<Record<string, string>> = words.reasons
  return reasons[name ?? ''] ?? name ?? ''
}

/** Fields of an index: the server's bound on columns is much higher, and longer indexes help nobody. */
const MAX_SUGGESTED = 5

/**
 * The fields of an index that would help a query: those it sorts by come first, since the order of the index must be theirs.
 * @returns none if no condition of the query can use an index
 */
export function suggestedFields(explanation: Explanation, sorted: readonly string[]): readonly string[] {
  const indexable = explanation.selector_hints[0]?.indexable_fields ?? []
  return [...new Set([...sorted, ...indexable])].filter((field) => field !== '_id').slice(0, MAX_SUGGESTED)
}
