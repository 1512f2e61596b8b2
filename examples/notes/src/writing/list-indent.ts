/** Tab and Shift-Tab in the lists of a note. Elsewhere Tab moves the focus, as on any page. */
import type { ChangeSpec, EditorState, Line, StateCommand } from '@codemirror/state'

/** The marker of a list item with the space behind it: `- `, `12. `. */
const ITEM = /^(\s*)((?:[-*+]|\d{1,9}[.)]) +)/

/** Moves the selected list items one level in. @returns false if no list item is selected */
export const indentItems: StateCommand = ({ state, dispatch }) => {
  const lines = selectedItems(state)
  if (lines.length === 0) return false
  // As far as the item's own text begins: enough to be inside an item with a marker of this width.
  const changes = lines.map((line) => ({ from: line.from, insert: ' '.repeat(widthOf(line)) }))
  dispatch(state.update({ changes, userEvent: 'input.indent' }))
  return true
}

/** Moves the selected list items one level out. @returns false if no list item is selected */
export const outdentItems: StateCommand = ({ state, dispatch }) => {
  const lines = selectedItems(state)
  if (lines.length === 0) return false
  const changes: readonly ChangeSpec[] = lines.map((line) => {
    const indent = /^ */.exec(line.text)?.[0].length ?? 0
    return { from: line.from, to: line.from + Math.min(indent, widthOf(line)) }
  })
  dispatch(state.update({ changes, userEvent: 'delete.dedent' }))
  return true
}

function widthOf({ text }: Line): number {
  return Math.min(4, ITEM.exec(text)?.[2]?.length ?? 2)
}

function selectedItems({ doc, selection }: EditorState): readonly Line[] {
  const lines = new Map<number, Line>()
  for (const { from, to } of selection.ranges) {
    for (let at = doc.lineAt(from).number; at <= doc.lineAt(to).number; at++) {
      const line = doc.line(at)
      if (ITEM.test(line.text)) lines.set(at, line)
    }
  }
  return [...lines.values()]
}
