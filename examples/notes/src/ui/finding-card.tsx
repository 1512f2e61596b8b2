import { useRef, useState } from 'preact/hooks'
import type { Finding } from '../diagnosis/finding.ts'

/** A problem, how to fix it, and the command to run. */
export function FindingCard({ finding }: { readonly finding: Finding }) {
  const { title, detail, command, code } = finding
  const [isCopied, tell] = useState(false)
  const line = useRef<HTMLElement>(null)
  const copy = async (text: string) => {
    try {
      await navigator.clipboard.writeText(text)
      tell(true)
    } catch {
      // A page loaded over plain http has no clipboard. The selected text can be copied by hand.
      if (line.current !== null) getSelection()?.selectAllChildren(line.current)
    }
  }
  return (
    <div class="finding" role="alert" data-finding={code}>
      <strong>{title}</strong>
      <p>{detail}</p>
      {command !== undefined && (
        <div class="command">
          <code ref={line}>{command}</code>
          <button type="button" class="small quiet" onClick={() => void copy(command)}>
            {isCopied ? 'Copied' : 'Copy'}
          </button>
        </div>
      )}
    </div>
  )
}
