/** What the decision about a document's edits (edit.ts) reads of the stored document. */
import { formatRev } from '../revisions/rev.ts'
import type { Touches } from '../storage/touches.ts'
import type { Edit } from './edit.ts'

/** For a new document, the usual write. */
const WINNER: Touches = { branches: true, ancestry: 'winner' }

type Declared = { -readonly [Name in keyof Touches]: Touches[Name] }

/**
 * Declares what `decideEdits` reads: of an edit made here the ancestry of its parent, of a replicated edit the ancestries
 * of the leaves that its path may reach, and for stubs the attachments of the revision before it.
 * @param readsOld whether a check reads the revision before each new one
 */
export function touchesOfEdits(edits: readonly Edit[], readsOld: boolean): Touches {
  const [first] = edits
  if (edits.length === 1 && first !== undefined && isNew(first)) return WINNER
  const touches: Declared = { branches: true }
  for (const edit of edits) {
    if (edit.isRepair) Object.assign(touches, { ancestry: 'leaves', revisions: true, retained: true })
    if (edit.newEdits) addEdit(touches, edit, readsOld)
    else addReplica(touches, edit, readsOld)
  }
  return touches
}

function isNew({ doc, newEdits, attachment }: Edit): boolean {
  return newEdits && doc.path === null && doc.attachments.length === 0 && attachment === undefined
}

function addEdit(touches: Declared, edit: Edit, readsOld: boolean): void {
  const { path } = edit.doc
  if (path === null) {
    // The parent is the winner, if there is one: a tombstone. Or all but the winner's attachment stays.
    touches.ancestry = 'winner'
    if (hasStubs(edit) || isRemoval(edit)) touches.body = true
    return
  }
  const parent = formatRev(path.pos, path.ids[0] as string)
  touches.ancestryOf = added(touches.ancestryOf, parent)
  if (readsOld || edit.attachment !== undefined) touches.revs = added(touches.revs, parent)
  else if (hasStubs(edit)) touches.attachments = added(touches.attachments, parent)
}

function addReplica(touches: Declared, edit: Edit, readsOld: boolean): void {
  const { path } = edit.doc
  if (path === null) return
  const oldest = path.pos - path.ids.length + 1
  touches.ancestryFrom = Math.min(oldest, touches.ancestryFrom ?? oldest)
  if (readsOld || hasStubs(edit)) touches.nearest = added(touches.nearest, path)
}

function added<T>(list: readonly T[] | undefined, value: T): readonly T[] {
  return list === undefined ? [value] : [...list, value]
}

/** An attachment without content is a stub. */
function hasStubs({ doc: { attachments } }: Edit): boolean {
  return attachments.length > 0 && attachments.some(({ content }) => content === null)
}

/** Whether the edit removes an attachment. */
function isRemoval({ attachment, doc }: Edit): boolean {
  return attachment !== undefined && doc.attachments.length === 0
}
