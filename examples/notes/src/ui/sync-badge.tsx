import type { FindingCode } from '../diagnosis/finding.ts'
import type { SyncStatus } from '../sync/status.ts'
import { hashOf } from './route.ts'
import { useServices, useWatched } from './services.ts'

/** The state of the sync in a few words, with a link to the details. */
export function SyncBadge() {
  const { syncer, refusals } = useServices()
  const status = useWatched(syncer)
  const refused = useWatched(refusals).length
  return (
    <a class="badge" href={hashOf({ screen: 'preferences', section: 'synchronization' })}>
      <span class={`dot is-${toneOf(status)}`} />
      <span role="status">
        {headline(status)}
        {refused > 0 && status.phase !== 'idle' ? `, ${refused} refused` : ''}
      </span>
    </a>
  )
}

/** The state of the sync as a dot in the top bar, where the sidebar is out of sight. */
export function SyncDot() {
  const { syncer } = useServices()
  const status = useWatched(syncer)
  const words = `Sync: ${headline(status)}`
  return (
    <a
      class="bare sync-dot"
      href={hashOf({ screen: 'preferences', section: 'synchronization' })}
      aria-label={words}
      title={words}
    >
      <span class={`dot is-${toneOf(status)}`} />
    </a>
  )
}

export function toneOf({ phase, idle, finding }: SyncStatus): 'calm' | 'busy' | 'good' | 'bad' {
  if (phase === 'synced') return 'good'
  if (finding?.code === 'offline') return 'calm'
  if (phase === 'waiting' || phase === 'stopped') return 'bad'
  if (phase === 'idle') return idle?.reason === 'address' ? 'bad' : 'calm'
  return 'busy'
}

/** Problems other than that nothing answers. The app tries again by itself. */
const WAITING: Partial<Readonly<Record<FindingCode, string>>> = {
  offline: 'Offline',
  no_database: 'There is no such database',
  no_mobile_filter: 'The filter for mobile devices is missing',
  not_couchdb: 'This is not a database',
  busy: 'The server is busy, trying again',
  server: 'The server has a problem, trying again',
  refusal: 'The server refuses, trying again',
}

export function headline({ phase, idle, finding }: SyncStatus): string {
  if (phase === 'synced') return 'Up to date'
  if (phase === 'syncing') return 'Syncing…'
  if (phase === 'connecting') return 'Connecting…'
  if (phase === 'waiting') return (finding && WAITING[finding.code]) ?? 'No connection, trying again'
  if (phase === 'stopped') return 'Stopped'
  if (idle === null) return 'Starting…'
  if (idle.reason === 'unchosen') return 'On this device only'
  if (idle.reason === 'signed-out') return 'Not signed in'
  if (idle.reason === 'no-address') return 'No Address yet'
  if (idle.reason === 'address') return 'The Address is not valid'
  return idle.reason === 'no-hosted-server' ? 'No hosted server' : 'Not syncing'
}
