/** What happens to a note's text: tasks, changes from elsewhere, the caret. */
import { history, undo } from '@codemirror/commands'
import { EditorState, Transaction } from '@codemirror/state'
import fc from 'fast-check'
import t from 'tap'
import { movedCaret } from '../../../examples/notes/src/notes/caret.ts'
import { toggledTask } from '../../../examples/notes/src/notes/tasks.ts'
import { changesBetween } from '../../../examples/notes/src/notes/text-changes.ts'
import { cpuMs } from '../../helpers/cpu-time.ts'

t.test('the changes between two texts turn one into the other', async () => {
  const text = fc.array(fc.constantFrom('a', 'b', '\n', '- [ ] ', '🌊', 'é'), { maxLength: 60 })
  fc.assert(
    fc.property(text, text, (one, other) => {
      const [before, after] = [one.join(''), other.join('')]
      const state = EditorState.create({ doc: before })
      return state.update({ changes: [...changesBetween(before, after)] }).newDoc.toString() === after
    }),
  )
})

t.test('a change from elsewhere moves neither caret nor selection, and is no step of undo', async (t) => {
  const before = 'first line\nsecond line\nthird line'
  const after = 'the first line\nsecond line\nthird line, longer'
  let state = EditorState.create({ doc: before, extensions: [history()] })
  state = state.update({ changes: { from: 17, insert: '!' }, userEvent: 'input.type' }).state
  state = state.update({ selection: { anchor: 11, head: 18 } }).state
  const withMark = `${after.slice(0, 21)}!${after.slice(21)}`
  state = state.update({
    changes: [...changesBetween(state.doc.toString(), withMark)],
    annotations: Transaction.addToHistory.of(false),
  }).state
  t.equal(state.sliceDoc(state.selection.main.from, state.selection.main.to), 'second!')
  undo({ state, dispatch: (transaction) => (state = transaction.state) })
  t.equal(state.doc.toString(), after, 'undo takes back what was typed here, and only that')
})

t.test('very different texts are compared in bounded time', async (t) => {
  const before = Array.from({ length: 40_000 }, (_, at) => `line ${at * 7919}`).join('\n')
  const after = Array.from({ length: 40_000 }, (_, at) => `other ${at * 104_729}`).join('\n')
  const begun = cpuMs()
  t.ok(changesBetween(before, after).length > 0)
  t.ok(cpuMs() - begun < 2000)
})

t.test('the caret of a plain field stays behind the same characters', async (t) => {
  for (const [before, after, at, expected] of [
    ['Bread', 'Rye bread', 5, 9],
    ['Bread', 'Bread and butter', 3, 3],
    ['Bread', 'Bread', 2, 2],
    ['Bread', '', 4, 0],
    ['', 'Bread', 0, 0],
    ['abcd', 'aXd', 2, 2],
    ['aaa', 'aa', 3, 2],
  ] as const) {
    t.equal(movedCaret(before, after, at), expected, `${before} → ${after}, ${at}`)
  }
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.nat(), (before, after, at) => {
      const place = movedCaret(before, after, at % (before.length + 1))
      return place >= 0 && place <= after.length
    }),
  )
})

t.test('a task is ticked where it stands', async (t) => {
  const body = '- [x] a\n- [ ] b\n  1. [ ] c\n\n> - [X] q\n\n```md\n- [ ] code\n```\n* [ ] last'
  const shown = [true, false, false, true, false]
  t.equal(toggledTask(body, shown, 0), body.replace('[x] a', '[ ] a'))
  t.equal(toggledTask(body, shown, 2), body.replace('[ ] c', '[x] c'))
  t.equal(toggledTask(body, shown, 3), body.replace('[X] q', '[ ] q'))
  t.equal(toggledTask(body, shown, 4), body.replace('[ ] last', '[x] last'))
  t.equal(toggledTask(body, shown, 5), null, 'there is no such task')
  t.equal(toggledTask(body, [...shown, true], 1), null, 'the text is not the one that is shown')
  t.equal(toggledTask(body, [false, ...shown.slice(1)], 1), null)
})
