/** How the editor looks: the colours are the page's, and reach into its shadow root as custom properties. */
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import type { Extension } from '@codemirror/state'
import { EditorView } from '@codemirror/view'
import { tags } from '@lezer/highlight'

const LOOK = EditorView.theme({
  '&': { color: 'var(--ink)', fontSize: '15px', height: '100%' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.7', overflowX: 'hidden' },
  '.cm-content': { padding: '2px 0 40px', minHeight: '320px', caretColor: 'var(--accent)' },
  '.cm-line': { padding: '0' },
  '.cm-cursor': { borderLeft: '2px solid var(--accent)' },
  '.cm-placeholder': { color: 'var(--soft)' },
  '.cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': {
    background: 'color-mix(in srgb, var(--accent) 28%, transparent)',
  },
  '.cm-panels': {
    position: 'sticky',
    background: 'var(--panel)',
    color: 'var(--ink)',
    borderRadius: 'var(--radius)',
    border: '0',
  },
  '.cm-panels-top': { border: '0', marginBottom: '8px' },
  '.cm-panel.cm-search': { padding: '10px 36px 10px 12px', font: '13.5px var(--sans)' },
  '.cm-panel.cm-search label': { fontSize: '13.5px' },
  '.cm-panel.cm-search [name=close]': { top: '8px', right: '10px', fontSize: '22px', color: 'var(--soft)' },
  '.cm-textfield': {
    border: '1px solid var(--edge)',
    borderRadius: '8px',
    background: 'var(--raised)',
    color: 'var(--ink)',
    padding: '4px 8px',
    font: '13.5px var(--sans)',
  },
  '.cm-button': {
    border: '1px solid var(--edge)',
    borderRadius: '999px',
    background: 'transparent',
    backgroundImage: 'none',
    color: 'var(--ink)',
    padding: '3px 12px',
    font: '600 13px var(--sans)',
  },
  '.cm-panel.cm-search :focus-visible': { outline: '2px solid var(--accent)', outlineOffset: '2px' },
  '.cm-panel.cm-search [type=checkbox]': { accentColor: 'var(--accent)', verticalAlign: '-2px' },
  '.cm-searchMatch': { background: 'var(--warn-wash)', outline: '1px solid var(--warn)' },
  '.cm-searchMatch-selected': { background: 'var(--accent-wash)', outline: '2px solid var(--accent)' },
})

/** Markdown, and the code in it. */
const COLOURS = HighlightStyle.define([
  { tag: tags.heading, fontWeight: '700', color: 'var(--accent)' },
  { tag: tags.strong, fontWeight: '700' },
  { tag: tags.emphasis, fontStyle: 'italic' },
  { tag: tags.strikethrough, textDecoration: 'line-through' },
  { tag: [tags.link, tags.url], color: 'var(--accent)' },
  { tag: tags.quote, color: 'var(--soft)', fontStyle: 'italic' },
  { tag: [tags.processingInstruction, tags.contentSeparator], color: 'var(--soft)' },
  { tag: tags.monospace, color: 'var(--code-text)' },
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: 'var(--code-keyword)' },
  { tag: [tags.string, tags.regexp, tags.special(tags.string)], color: 'var(--code-string)' },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: 'var(--code-number)' },
  { tag: [tags.comment, tags.meta], color: 'var(--soft)' },
  { tag: [tags.typeName, tags.className, tags.tagName], color: 'var(--code-type)' },
  { tag: [tags.propertyName, tags.attributeName], color: 'var(--code-name)' },
])

export const THEME: Extension = [LOOK, syntaxHighlighting(COLOURS)]
