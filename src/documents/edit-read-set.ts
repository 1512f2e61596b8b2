/** What the decision about a document's edits (edit.ts) reads of the stored document. */
import { formatRev } from '../revisions/rev.ts'
import type { ReadSet } from '../storage/read-set.ts'
import type { Edit } from './edit.ts'

/** For a new document, the usual write. */
const WINNER: ReadSet = { branches: true, ancestry: 'winner' }

type Declared = { -readonly [Name in keyof ReadSet]: ReadSet[Name] }

/**
 * Declares what `decideEdits` reads: of an edit made here the ancestry of its parent, of a replicated edit the ancestries
 * of the leaves that its path may reach, and for stubs the attachments of the revision before it.
 * @param readsOld whether a check reads the revision before each new one
 */
export function readSetOfEdits(edits: readonly Edit[], readsOld: boolean): ReadSet {
  const [first] = edits
  if (edits.length === 1 && first !== undefined && isNew(first)) return WINNER
  const readSet: Declared = { branches: true }
  for (const edit of edits) {
    if (edit.isRepair) Object.assign(readSet, { ancestry: 'leaves', revisions: true, retained: true })
    if (edit.newEdits) addEdit(readSet, edit, readsOld)
    else addReplica(readSet, edit, readsOld)
  }
  return readSet
}

function isNew({ doc, newEdits, attachment }: Edit): boolean {
  return newEdits && doc.path === null && doc.attachments.length === 0 && attachment === undefined
}

function addEdit(readSet: Declared, edit: Edit, readsOld: boolean): void {
  const { path } = edit.doc
  if (path === null) {
    // The parent is the winner, if there is one: a tombstone. Or all but the winner's attachment stays.
    readSet.ancestry = 'winner'
    if (hasStubs(edit) || isRemoval(edit)) readSet.body = true
    return
  }
  const parent = formatRev(path.pos, path.ids[0] as string)
  readSet.ancestryOf = added(readSet.ancestryOf, parent)
  if (readsOld || edit.attachment !== undefined) readSet.revs = added(readSet.revs, parent)
  else if (hasStubs(edit)) readSet.attachments = added(readSet.attachments, parent)
}

function addReplica(readSet: Declared, edit: Edit, readsOld: boolean): void {
  const { path } = edit.doc
  if (path === null) return
  const oldest = path.pos - path.ids.length + 1
  readSet.ancestryFrom = Math.min(oldest, readSet.ancestryFrom ?? oldest)
  if (readsOld || hasStubs(edit)) readSet.nearest = added(readSet.nearest, path)
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
