import { useEffect, useRef } from 'preact/hooks'
import { MODE_NAMES, SYNC_MODES, type SyncMode } from '../settings.ts'
import { AdvancedPanel } from './advanced-panel.tsx'
import { HostedPanel } from './hosted-panel.tsx'
import { useServices, useWatched } from './services.ts'
import { StatusCard } from './status-card.tsx'

const ABOUT: Readonly<Record<SyncMode, string>> = {
  off: 'Your notes stay on this device.',
  hosted: 'Sign in with an account on a server that someone else runs.',
  advanced: 'Use your own server: settee, CouchDB, or a compatible one.',
}

export function Synchronization() {
  const { settings } = useServices()
  const { mode, isMobile } = useWatched(settings)
  const { status, bringIntoView } = useStatusInView()
  return (
    <>
      <fieldset class="card modes">
        <legend class="unseen">How to sync</legend>
        {SYNC_MODES.map((each) => (
          <label class="mode" key={each}>
            <input
              type="radio"
              name="mode"
              checked={each === mode}
              onChange={() => settings.chooseMode(each)}
            />
            <span>
              {MODE_NAMES[each]}
              <small>{ABOUT[each]}</small>
            </span>
          </label>
        ))}
      </fieldset>
      {mode === 'hosted' && <HostedPanel />}
      {mode === 'advanced' && <AdvancedPanel onApplied={bringIntoView} />}
      <div class="status" ref={status} tabIndex={-1}>
        <StatusCard />
      </div>
      {mode !== 'off' && (
        <label class="card toggle">
          <span>
            Mobile device
            <small>Leaves pictures on your other devices: this device neither downloads nor sends any.</small>
          </span>
          <input
            type="checkbox"
            role="switch"
            aria-checked={isMobile}
            checked={isMobile}
            onChange={(event) => settings.setMobile(event.currentTarget.checked)}
          />
        </label>
      )}
    </>
  )
}

/** After Apply, the status is brought into view, and again when its result comes. */
function useStatusInView() {
  const { syncer } = useServices()
  const { phase, finding } = useWatched(syncer)
  const status = useRef<HTMLDivElement>(null)
  const isAwaited = useRef(false)
  const scroll = () => status.current?.scrollIntoView({ block: 'nearest' })
  const bringIntoView = () => {
    isAwaited.current = true
    status.current?.focus({ preventScroll: true })
    scroll()
  }
  useEffect(() => {
    if (!isAwaited.current) return
    scroll()
    if (phase === 'synced' || (finding !== null && phase !== 'connecting')) isAwaited.current = false
  }, [phase, finding])
  return { status, bringIntoView }
}
