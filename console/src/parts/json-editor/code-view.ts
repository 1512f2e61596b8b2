/** CodeMirror as the console uses it. This file is loaded when the first editor appears. */
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { javascript } from '@codemirror/lang-javascript'
import { json } from '@codemirror/lang-json'
import {
  bracketMatching,
  codeFolding,
  foldGutter,
  foldKeymap,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from '@codemirror/language'
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search'
import { EditorState, type Extension, Prec, StateEffect, StateField } from '@codemirror/state'
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from '@codemirror/view'
import { tags } from '@lezer/highlight'

export type CodeLanguage = 'json' | 'javascript' | 'text'

const COLORS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.variableName)], color: 'var(--info)' },
  { tag: [tags.string, tags.regexp], color: 'var(--good)' },
  { tag: tags.number, color: 'var(--warn)' },
  { tag: [tags.bool, tags.null, tags.keyword], color: 'var(--accent-strong)', fontWeight: '600' },
  { tag: tags.comment, color: 'var(--soft)', fontStyle: 'italic' },
  { tag: [tags.punctuation, tags.separator, tags.bracket], color: 'var(--soft)' },
])

/** The colours are those of the page, which follow its theme. */
const THEME = EditorView.theme({
  '&': { color: 'var(--ink)', backgroundColor: 'transparent', fontSize: '0.875rem', blockSize: '100%' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--ink)', paddingBlock: '0.5rem' },
  '.cm-cursor, .cm-dropCursor': { borderLeftColor: 'var(--ink)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'color-mix(in srgb, var(--accent) 28%, transparent)',
  },
  '.cm-gutters': {
    backgroundColor: 'var(--sunken)',
    color: 'var(--soft)',
    borderRight: '1px solid var(--line)',
  },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'transparent' },
  '&.cm-focused .cm-activeLine, &.cm-focused .cm-activeLineGutter': {
    backgroundColor: 'color-mix(in srgb, var(--ink) 5%, transparent)',
  },
  '&.cm-focused .cm-activeLineGutter': { color: 'var(--ink)' },
  '.cm-foldGutter .cm-gutterElement': { inlineSize: '1rem', textAlign: 'center', cursor: 'pointer' },
  '.cm-foldPlaceholder': {
    backgroundColor: 'var(--accent-wash)',
    border: '0',
    color: 'var(--accent-strong)',
    paddingInline: '0.4rem',
  },
  '& .cm-matchingBracket': { backgroundColor: 'transparent' },
  '&.cm-focused .cm-matchingBracket': {
    backgroundColor: 'var(--accent-wash)',
    outline: '1px solid var(--edge)',
  },
  '.cm-faultLine': { backgroundColor: 'var(--bad-wash)' },
  '.cm-searchMatch': { backgroundColor: 'var(--warn-wash)', outline: '1px solid var(--warn)' },
  '.cm-searchMatch-selected': { backgroundColor: 'color-mix(in srgb, var(--warn) 40%, transparent)' },
  '.cm-selectionMatch': { backgroundColor: 'var(--info-wash)' },
  '.cm-panels': { backgroundColor: 'var(--sunken)', color: 'var(--ink)' },
  '.cm-panels.cm-panels-top': { borderBottom: '1px solid var(--line)' },
  '.cm-panel.cm-search': { padding: '0.5rem 2.5rem 0.5rem 0.6rem', fontSize: '0.875rem' },
  '.cm-panel.cm-search label': { fontSize: '0.875rem' },
  '.cm-panel.cm-search [name=close]': { fontSize: '1.25rem', inlineSize: '2rem', blockSize: '2rem' },
  '.cm-textfield': {
    backgroundColor: 'var(--card)',
    border: '1px solid var(--edge)',
    borderRadius: '5px',
    color: 'inherit',
    fontFamily: 'var(--sans)',
    fontSize: '0.875rem',
    padding: '0.25rem 0.5rem',
  },
  '.cm-button': {
    backgroundColor: 'var(--card)',
    backgroundImage: 'none',
    border: '1px solid var(--edge)',
    borderRadius: '5px',
    color: 'inherit',
    fontFamily: 'var(--sans)',
    fontSize: '0.8125rem',
    padding: '0.25rem 0.6rem',
  },
  '.cm-textfield:focus-visible, .cm-button:focus-visible, [name=close]:focus-visible': {
    outline: '2px solid var(--accent)',
    outlineOffset: '1px',
  },
})

/** The line of a fault; null removes the mark. */
const markFault = StateEffect.define<number | null>()
const FAULT_LINE = Decoration.line({ class: 'cm-faultLine' })

const faultLine = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, { changes, effects, state }) {
    let next = marks.map(changes)
    for (const effect of effects) {
      if (!effect.is(markFault)) continue
      const at = effect.value
      next = at === null ? Decoration.none : Decoration.set(FAULT_LINE.range(state.doc.lineAt(at).from))
    }
    return next
  },
  provide: (field) => EditorView.decorations.from(field),
})

export interface CodeLook {
  readonly language: CodeLanguage
  readonly isReadOnly: boolean
  readonly label: string
  readonly wraps?: boolean
}

/** Everything of an editor that does not depend on where it stands. */
export function codeExtensions({ language, isReadOnly, label, wraps = true }: CodeLook): Extension[] {
  return [
    lineNumbers(),
    codeFolding(),
    foldGutter(),
    history(),
    drawSelection(),
    indentOnInput(),
    indentUnit.of('  '),
    bracketMatching(),
    highlightActiveLine(),
    highlightActiveLineGutter(),
    highlightSelectionMatches(),
    search({ top: true }),
    syntaxHighlighting(COLORS),
    faultLine,
    language === 'json' ? json() : language === 'javascript' ? javascript() : [],
    // Tab moves the focus on, as everywhere in the page.
    keymap.of([...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap]),
    EditorState.readOnly.of(isReadOnly),
    EditorView.contentAttributes.of({
      'aria-label': label,
      'aria-readonly': String(isReadOnly),
      autocapitalize: 'off',
      autocorrect: 'off',
      spellcheck: 'false',
    }),
    wraps ? EditorView.lineWrapping : [],
    THEME,
  ]
}

export interface CodeHandlers {
  /** Called with the text after each change by the user. */
  onChange(text: string): void
  /** Called for Mod-S. */
  onSave(): void
}

/** An editor as the component uses it. */
export interface CodeView {
  /** Replaces the text, unless it is the same. */
  setText(text: string): void
  /** Marks the line of a position; null removes the mark. */
  setFault(at: number | null): void
  /** Moves the caret there, shows it, and takes the focus. */
  goTo(at: number): void
  destroy(): void
}

/**
 * Makes an editor in a shadow root: there, CodeMirror adopts style sheets, which the page's policy allows, while it would
 * insert style elements into the document.
 */
export function createCodeView(
  root: ShadowRoot,
  parent: HTMLElement,
  text: string,
  look: CodeLook,
  { onChange, onSave }: CodeHandlers,
): CodeView {
  let isOwnChange = false
  const save = () => {
    onSave()
    return true
  }
  const view = new EditorView({
    root,
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        Prec.high(keymap.of([{ key: 'Mod-s', preventDefault: true, run: () => save() }])),
        codeExtensions(look),
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged && !isOwnChange) onChange(state.doc.toString())
        }),
      ],
    }),
  })
  return {
    setText(next) {
      if (view.state.doc.toString() === next) return
      isOwnChange = true
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } })
      isOwnChange = false
    },
    setFault(at) {
      view.dispatch({ effects: markFault.of(at === null ? null : Math.min(at, view.state.doc.length)) })
    },
    goTo(at) {
      const anchor = Math.min(at, view.state.doc.length)
      view.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: 'center' }) })
      view.focus()
    },
    destroy: () => view.destroy(),
  }
}
