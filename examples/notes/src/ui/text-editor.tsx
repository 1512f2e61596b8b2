import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { CodeEditor, CodeEditorOptions } from '../writing/code-editor.ts'

type EditorClass = new (options: CodeEditorOptions) => CodeEditor

let loading: Promise<EditorClass> | null = null

/** Loads the editor, which is not part of the page's first load. */
export function loadTextEditor(): Promise<EditorClass> {
  loading ??= import('../writing/code-editor.ts').then(
    (module) => module.CodeEditor,
    (error: unknown) => {
      loading = null
      throw error
    },
  )
  return loading
}

/** What the note's screen does with the editor. */
export interface TextEditorHandle {
  focus(): void
  insertBlock(text: string): void
}

interface TextEditorProps {
  readonly text: string
  /** Whether the user made the last change of the text outside of the editor, so that undo can revert it. */
  readonly isOwn: boolean
  readonly isHidden: boolean
  /** Called once the editor is there, and with null when it goes. */
  readonly onReady: (handle: CodeEditor | null) => void
  readonly onChange: (text: string) => void
  readonly onToggle: () => void
  readonly onFiles: (files: readonly File[]) => void
}

/** The text of a note in Markdown. It stays while it is hidden, and keeps its history. */
export function TextEditor(props: TextEditorProps) {
  const { text, isOwn, isHidden } = props
  const host = useRef<HTMLDivElement>(null)
  const latest = useRef(props)
  latest.current = props
  const [editor, setEditor] = useState<CodeEditor | null>(null)
  const [isMissing, miss] = useState(false)
  useEffect(() => {
    let made: CodeEditor | null = null
    let isGone = false
    const make = (Editor: EditorClass) => {
      if (isGone || host.current === null) return
      made = new Editor({
        host: host.current,
        text: latest.current.text,
        onChange: (next) => latest.current.onChange(next),
        onToggle: () => latest.current.onToggle(),
        onFiles: (files) => latest.current.onFiles(files),
      })
      setEditor(made)
      latest.current.onReady(made)
    }
    void loadTextEditor().then(make, () => miss(true))
    return () => {
      isGone = true
      latest.current.onReady(null)
      made?.destroy()
    }
  }, [])
  useLayoutEffect(() => editor?.show(text, isOwn), [editor, text, isOwn])
  useLayoutEffect(() => {
    if (!isHidden) editor?.measure()
  }, [editor, isHidden])
  return (
    <>
      {isMissing && !isHidden && (
        <p class="notice is-bad" role="alert">
          <span>The editor could not be loaded. Your notes are safe.</span>
          <button type="button" class="small" onClick={() => location.reload()}>
            Load the page again
          </button>
        </p>
      )}
      <div class="body" ref={host} hidden={isHidden} />
    </>
  )
}
