import { useEffect, useRef } from 'preact/hooks'
import { en } from '../../strings/en.ts'
import type { CodeLanguage, CodeView } from './code-view.ts'
import { Echoes } from './echoes.ts'
import { EditorPlace, useEditorHost } from './editor-host.tsx'

export interface CodeEditorProps {
  readonly label: string
  readonly value: string
  readonly language: CodeLanguage
  /** Called with the text after each change by the user; absent: the text cannot be changed. */
  readonly onChange?: (value: string) => void
  /** The position of a fault, whose line is marked; null: there is none. */
  readonly faultAt?: number | null
  /** Set to a new object to move the caret to a position. */
  readonly goTo?: { readonly at: number } | null
  /** Whether it grows with its text, up to a limit, or fills its container. */
  readonly fills?: boolean
  /** Called for Mod-S in the editor. */
  readonly onSave?: () => void
}

/** An editor for code, whose own code is loaded when it first appears; a plain text field where that fails. */
export function CodeEditor(props: CodeEditorProps) {
  const { label, value, language, onChange, faultAt = null, goTo = null, fills = false } = props
  const echoes = useRef(new Echoes())
  const latest = useRef(props)
  latest.current = props
  const isReadOnly = onChange === undefined
  const { host, view, state } = useEditorHost<CodeView>(async () => {
    const { createCodeView } = await import('./code-view.ts')
    return (root, frame) =>
      createCodeView(
        root,
        frame,
        latest.current.value,
        { language, isReadOnly, label },
        {
          onChange: (text) => {
            echoes.current.send(text)
            latest.current.onChange?.(text)
          },
          onSave: () => latest.current.onSave?.(),
        },
      )
  }, [language, isReadOnly, label])
  useEffect(() => {
    if (!echoes.current.isEcho(value)) view.current?.setText(value)
  }, [value, state])
  useEffect(() => view.current?.setFault(faultAt), [faultAt, state])
  useEffect(() => {
    if (goTo !== null) view.current?.goTo(goTo.at)
  }, [goTo])
  if (state === 'plain') {
    return (
      <textarea
        class={`code-plain is-code ${fills ? 'fills' : ''}`}
        aria-label={label}
        title={en.codeEditor.isPlain}
        spellcheck={false}
        readOnly={isReadOnly}
        value={value}
        onInput={(event) => onChange?.(event.currentTarget.value)}
      />
    )
  }
  return <EditorPlace host={host} isLoading={state === 'loading'} fills={fills} />
}
