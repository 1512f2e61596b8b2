import { useRef, useState } from 'preact/hooks'
import type { Finding } from '../diagnosis/finding.ts'

/** A problem, how to fix it, and the command to run. */
export function FindingCard({ finding }: { readonly finding: Finding }) {
  const { title, detail, points = [], command, code } = finding
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
    <div
      class={`finding${code === 'offline' ? ' is-calm' : ''}`}
      role={code === 'offline' ? 'status' : 'alert'}
      data-finding={code}
    >
      <strong>{title}</strong>
      {detail !== '' && <p>{detail}</p>}
      {points.length > 0 && (
        <ul class="points">
          {points.map((point) => (
            <li key={point}>{point}</li>
          ))}
        </ul>
      )}
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
