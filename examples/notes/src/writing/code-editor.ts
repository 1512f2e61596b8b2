/**
 * The editor of a note's text: CodeMirror with Markdown. Loaded when it is needed. It lives in a shadow root, where
 * CodeMirror uses constructed style sheets: the page's policy allows no others.
 */
import { defaultKeymap, history, historyKeymap, isolateHistory } from '@codemirror/commands'
import {
  deleteMarkupBackward,
  insertNewlineContinueMarkupCommand,
  markdown,
  markdownLanguage,
} from '@codemirror/lang-markdown'
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search'
import { EditorSelection, EditorState, type Extension, Transaction } from '@codemirror/state'
import { drawSelection, EditorView, keymap, placeholder } from '@codemirror/view'
import { changesBetween } from '../notes/text-changes.ts'
import { languageOf } from './code-languages.ts'
import { indentItems, outdentItems } from './list-indent.ts'
import { THEME } from './theme.ts'

export interface CodeEditorOptions {
  readonly host: HTMLElement
  readonly text: string
  /** What the user has changed. */
  readonly onChange: (text: string) => void
  /** Ctrl-Enter, or Cmd-Enter on a Mac. */
  readonly onToggle: () => void
  /** Pasted or dropped files. */
  readonly onFiles: (files: readonly File[]) => void
}

export class CodeEditor {
  readonly #view: EditorView
  #isShowing = false

  constructor(options: CodeEditorOptions) {
    const root = options.host.shadowRoot ?? options.host.attachShadow({ mode: 'open' })
    const told = EditorView.updateListener.of(({ docChanged, state }) => {
      if (docChanged && !this.#isShowing) options.onChange(state.doc.toString())
    })
    this.#view = new EditorView({
      parent: root,
      root,
      state: EditorState.create({ doc: options.text, extensions: [extensionsOf(options), told] }),
    })
  }

  /**
   * Shows a text that was changed elsewhere. Caret, selection and scroll position stay at the same words.
   * @param isOwn whether the user made the change, so that undo can revert it, as one step
   */
  show(text: string, isOwn: boolean): void {
    const { state } = this.#view
    const before = state.doc.toString()
    if (before === text) return
    this.#isShowing = true
    this.#view.dispatch({
      changes: [...changesBetween(before, text)],
      annotations: isOwn ? isolateHistory.of('full') : Transaction.addToHistory.of(false),
      scrollIntoView: false,
    })
    this.#isShowing = false
  }

  /** Inserts a block on lines of its own behind the caret. */
  insertBlock(text: string): void {
    const { state } = this.#view
    const at = state.selection.main.to
    const isAtLine = state.doc.lineAt(at).from === at
    const insert = `${isAtLine ? '' : '\n'}${text}\n`
    this.#view.dispatch({
      changes: { from: at, insert },
      selection: EditorSelection.cursor(at + insert.length),
      userEvent: 'input.paste',
    })
  }

  /** The element that scrolls when the editor has a height of its own. */
  get scroller(): HTMLElement {
    return this.#view.scrollDOM
  }

  focus(): void {
    this.#view.focus()
  }

  /** Measures again after it was hidden. */
  measure(): void {
    this.#view.requestMeasure()
  }

  destroy(): void {
    this.#view.destroy()
  }
}

/** CodeMirror's words are in lower case, which those of the app are not. */
const SEARCH_WORDS = {
  next: 'Next',
  previous: 'Previous',
  all: 'All',
  'match case': 'Match case',
  'by word': 'Whole words',
  regexp: 'Regular expression',
  replace: 'Replace',
  'replace all': 'Replace all',
}

function extensionsOf({ onToggle, onFiles }: CodeEditorOptions): Extension {
  const take = (files: FileList | undefined, event: Event) => {
    if (files === undefined || files.length === 0) return false
    event.preventDefault()
    onFiles([...files])
    return true
  }
  return [
    history(),
    drawSelection(),
    EditorView.lineWrapping,
    EditorState.allowMultipleSelections.of(true),
    placeholder('Write in Markdown…'),
    markdown({
      base: markdownLanguage,
      addKeymap: false,
      completeHTMLTags: false,
      codeLanguages: languageOf,
    }),
    search({ top: true }),
    EditorState.phrases.of(SEARCH_WORDS),
    highlightSelectionMatches(),
    THEME,
    EditorView.contentAttributes.of({
      'aria-label': 'Text',
      tabindex: '0',
      spellcheck: 'true',
      autocapitalize: 'sentences',
      autocorrect: 'on',
    }),
    EditorView.domEventHandlers({
      paste: (event) => take(event.clipboardData?.files, event),
      drop: (event) => take(event.dataTransfer?.files, event),
    }),
    keymap.of([
      {
        key: 'Mod-Enter',
        run: () => {
          onToggle()
          return true
        },
      },
      { key: 'Enter', run: insertNewlineContinueMarkupCommand({ nonTightLists: false }) },
      { key: 'Backspace', run: deleteMarkupBackward },
      { key: 'Tab', run: indentItems, shift: outdentItems },
      ...historyKeymap,
      ...searchKeymap,
      ...defaultKeymap,
    ]),
  ]
}
