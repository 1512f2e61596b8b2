/** A version of a document as lines that can be compared. Pure. */
import { formatJson, membersOf } from '../../parts/json-editor/exact-json.ts'

/** Members that name the version, not its content. */
const HIDDEN: ReadonlySet<string> = new Set(['_id', '_rev', '_attachments', '_deleted'])

/** The content with a member on each line, and its numbers as they are stored. */
export function contentText(text: string): string {
  const members = membersOf(text).filter(({ name }) => !HIDDEN.has(name))
  return formatJson(`{${members.map(({ from, to }) => text.slice(from, to)).join(',')}}`)
}

export interface VersionAttachment {
  readonly name: string
  readonly type: string
  readonly length: number
  readonly digest: string
}

/** In their order. */
export function attachmentsOf(text: string): readonly VersionAttachment[] {
  const member = membersOf(text).find(({ name }) => name === '_attachments')
  if (member === undefined) return []
  const stubs = JSON.parse(text.slice(member.valueFrom, member.to)) as Record<
    string,
    { readonly content_type: string; readonly length: number; readonly digest: string }
  >
  return Object.entries(stubs).map(([name, { content_type, length, digest }]) => ({
    name,
    type: content_type,
    length,
    digest,
  }))
}

export interface DiffLine {
  readonly kind: 'same' | 'added' | 'removed'
  readonly text: string
}

/** Lines that were left out because they are the same. */
export interface DiffGap {
  readonly kind: 'gap'
  readonly lines: number
}

/** Unchanged lines that are shown before and after a change. */
const CONTEXT = 3
/** More lines than people read are not shown. */
const MAX_LINES = 2000

/** Leaves out unchanged lines that are far from a change. */
export function withGaps(lines: readonly DiffLine[]): readonly (DiffLine | DiffGap)[] {
  const near = new Set<number>()
  lines.forEach(({ kind }, at) => {
    if (kind === 'same') return
    for (let each = at - CONTEXT; each <= at + CONTEXT; each++) near.add(each)
  })
  const shown: (DiffLine | DiffGap)[] = []
  for (let at = 0; at < lines.length; at++) {
    if (shown.length >= MAX_LINES) return [...shown, { kind: 'gap', lines: lines.length - at }]
    const line = lines[at] as DiffLine
    if (near.has(at)) shown.push(line)
    else {
      const last = shown.at(-1)
      if (last?.kind === 'gap') shown[shown.length - 1] = { kind: 'gap', lines: last.lines + 1 }
      else shown.push({ kind: 'gap', lines: 1 })
    }
  }
  return shown
}
