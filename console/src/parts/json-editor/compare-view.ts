/** CodeMirror's comparison of two texts. This file is loaded when the first comparison appears. */
import { MergeView, unifiedMergeView } from '@codemirror/merge'
import { EditorState } from '@codemirror/state'
import { EditorView } from '@codemirror/view'
import { codeExtensions } from './code-view.ts'

/** Marks for what differs; the sign at the edge does not depend on colour alone. */
const THEME = EditorView.theme({
  // A line below, since a darker ground would leave the colours of the text too little contrast.
  '&.cm-merge-a .cm-changedText, .cm-deletedChunk .cm-deletedText': {
    background: 'none',
    boxShadow: 'inset 0 -2px var(--bad)',
  },
  '&.cm-merge-b .cm-changedText': { background: 'none', boxShadow: 'inset 0 -2px var(--good)' },
  '&.cm-merge-a .cm-changedLine, .cm-deletedChunk': { backgroundColor: 'var(--bad-wash)' },
  '&.cm-merge-b .cm-changedLine, .cm-inlineChangedLine': { backgroundColor: 'var(--good-wash)' },
  '&.cm-merge-a .cm-changedLineGutter, .cm-deletedLineGutter': { background: 'var(--bad)' },
  '&.cm-merge-b .cm-changedLineGutter': { background: 'var(--good)' },
  '.cm-chunkButtons button, .cm-chunkButtons button:hover': {
    padding: '0.3rem 0.6rem',
    border: '1px solid var(--edge)',
    borderRadius: '5px',
    background: 'var(--card)',
    color: 'var(--ink)',
    fontFamily: 'var(--sans)',
    fontSize: '0.8125rem',
  },
  '.cm-collapsedLines': {
    color: 'var(--soft)',
    background: 'var(--sunken)',
    paddingBlock: '0.25rem',
  },
})

/** The frame around both editors, which CodeMirror's themes do not reach. */
const FRAME = new CSSStyleSheet()
FRAME.replaceSync(`
  .cm-mergeView { block-size: 100%; overflow-y: auto; }
  .cm-merge-revert { inline-size: 2.25rem; border-inline: 1px solid var(--line); background: var(--sunken); }
  .cm-merge-revert button {
    inline-size: 2rem; block-size: 1.5rem; padding: 0; border: 1px solid var(--edge); border-radius: 5px;
    background: var(--card); color: var(--ink); font: inherit; cursor: pointer;
  }
  .cm-merge-revert button:hover { background: var(--accent-wash); }
  .cm-merge-revert button:focus-visible { outline: 2px solid var(--accent); }
`)

export interface CompareLook {
  readonly leftLabel: string
  readonly rightLabel: string
  /** The name of the buttons that take a difference over to the right. */
  readonly takeLabel: string
  readonly isRightEditable: boolean
  /** Whether both texts stand in one column, the left one's differences above the right one's. */
  readonly isNarrow: boolean
}

export interface CompareView {
  /** Replaces the text on the right, unless it is the same. */
  setRight(text: string): void
  destroy(): void
}

/** @param onChange called with the text on the right after each change by the user */
export function createCompareView(
  root: ShadowRoot,
  parent: HTMLElement,
  [left, right]: readonly [left: string, right: string],
  look: CompareLook,
  onChange: (text: string) => void,
): CompareView {
  root.adoptedStyleSheets = [...root.adoptedStyleSheets.filter((sheet) => sheet !== FRAME), FRAME]
  let isOwnChange = false
  const extensionsOfRight = [
    codeExtensions({ language: 'json', isReadOnly: !look.isRightEditable, label: look.rightLabel }),
    THEME,
    EditorView.updateListener.of(({ docChanged, state }) => {
      if (docChanged && !isOwnChange) onChange(state.doc.toString())
    }),
  ]
  const collapse = { margin: 3, minSize: 6 }
  const [view, destroy] = look.isNarrow ? unified() : sideBySide()
  return {
    setRight(text) {
      if (view.state.doc.toString() === text) return
      isOwnChange = true
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } })
      isOwnChange = false
    },
    destroy,
  }

  function unified(): [EditorView, () => void] {
    const editor = new EditorView({
      root,
      parent,
      state: EditorState.create({
        doc: right,
        extensions: [
          extensionsOfRight,
          unifiedMergeView({
            original: left,
            mergeControls: look.isRightEditable ? controlOf : false,
            collapseUnchanged: collapse,
          }),
        ],
      }),
    })
    return [editor, () => editor.destroy()]
  }

  function sideBySide(): [EditorView, () => void] {
    const merge = new MergeView({
      root,
      parent,
      a: {
        doc: left,
        extensions: [codeExtensions({ language: 'json', isReadOnly: true, label: look.leftLabel }), THEME],
      },
      b: { doc: right, extensions: extensionsOfRight },
      collapseUnchanged: collapse,
      ...(look.isRightEditable && { revertControls: 'a-to-b' as const, renderRevertControl: takeButton }),
    })
    return [merge.b, () => merge.destroy()]
  }

  /** To reject a difference is to take over the left side; to accept it changes nothing of the text, so it has no button. */
  function controlOf(kind: 'accept' | 'reject', act: (event: MouseEvent) => void): HTMLElement {
    if (kind === 'accept') return document.createElement('span')
    const button = takeButton()
    button.textContent = look.takeLabel
    button.addEventListener('click', act)
    return button
  }

  function takeButton(): HTMLElement {
    const button = document.createElement('button')
    button.type = 'button'
    button.textContent = '→'
    button.title = look.takeLabel
    button.setAttribute('aria-label', look.takeLabel)
    return button
  }
}
