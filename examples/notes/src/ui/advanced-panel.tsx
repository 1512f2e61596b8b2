import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { parseAddress } from '../../../../src/core/address.ts'
import type { Diagnosis } from '../diagnosis/finding.ts'
import { addressVerdict } from '../diagnosis/verdict.ts'
import { masked, unmasked } from '../sync/masked-address.ts'
import { AddressField } from './address-field.tsx'
import { DiagnosisView } from './diagnosis-view.tsx'
import { useServices, useWatched } from './services.ts'

/** The Address of the user's own server. It takes effect when it is applied. */
export function AdvancedPanel({ onApplied }: { readonly onApplied: () => void }) {
  const { settings, diagnose } = useServices()
  const { address: applied, isMobile } = useWatched(settings)
  /** What the field shows. */
  const [text, setText] = useState(masked(applied))
  /** The Address whose password the mask stands for. */
  const [hidden, setHidden] = useState(applied)
  const typed = unmasked(text, hidden)
  // Another window of the app may apply an Address, too. Later than in this turn, the effect would undo what was typed.
  useLayoutEffect(() => {
    setHidden(applied)
    setText(masked(applied))
  }, [applied])
  const [diagnosis, setDiagnosis] = useState<Diagnosis | 'running' | null>(null)
  const isApplied = typed.trim() === applied
  const running = useRef(new AbortController())
  // A diagnosis of another address is not shown for this one.
  const show = (next: Diagnosis | 'running' | null) => {
    running.current.abort()
    setDiagnosis(next)
  }
  useEffect(() => () => running.current.abort(), [])
  const apply = () => {
    const result = settings.applyAddress(typed)
    show(result.ok ? null : addressVerdict(result.faults))
    if (result.ok) onApplied()
  }
  const examine = async () => {
    const result = parseAddress(typed, { mobile: isMobile })
    show(result.ok ? 'running' : addressVerdict(result.faults))
    if (!result.ok) return
    running.current = new AbortController()
    const { signal } = running.current
    const found = await diagnose(result.address, { mobile: isMobile, isHosted: false }, signal)
    if (!signal.aborted) setDiagnosis(found)
  }
  return (
    <form
      class="card form"
      onSubmit={(event) => {
        event.preventDefault()
        apply()
      }}
    >
      <p class="notice">
        <span>
          <strong>You are the operator of this server.</strong> You are responsible for TLS, passwords,
          updates and backups. This app only syncs with the database that you name.
        </span>
      </p>
      <AddressField
        text={text}
        isShown={text === typed}
        hasPassword={masked(typed) !== typed}
        onInput={(next) => {
          setText(next)
          show(null)
        }}
        onShow={(isShown) => {
          setHidden(typed)
          setText(isShown ? typed : masked(typed))
        }}
        onCopy={() => typed.trim()}
      />
      <p class="hint">{hintOf(applied, isApplied)}</p>
      <div class="buttons">
        <button type="submit" disabled={isApplied}>
          Apply
        </button>
        <button
          type="button"
          class="quiet"
          disabled={typed.trim() === '' || diagnosis === 'running'}
          onClick={() => void examine()}
        >
          Network diagnosis
        </button>
      </div>
      {diagnosis !== null && <DiagnosisView diagnosis={diagnosis} />}
    </form>
  )
}

function hintOf(applied: string, isApplied: boolean): string {
  if (applied === '') return 'The port is required, even if it is 443 or 80.'
  return isApplied ? 'Applied.' : 'Changed, but not applied yet.'
}
