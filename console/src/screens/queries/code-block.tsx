import { CodeEditor } from '../../parts/json-editor/code-editor.tsx'

/** JSON that can be read, searched and copied, in a frame that scrolls. */
export function CodeBlock({ label, text }: { readonly label: string; readonly text: string }) {
  return (
    <div class="code-block">
      <CodeEditor label={label} value={text} language="json" fills />
    </div>
  )
}
