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

export function toneOf({ phase, idle }: SyncStatus): 'calm' | 'busy' | 'good' | 'bad' {
  if (phase === 'synced') return 'good'
  if (phase === 'waiting' || phase === 'stopped') return 'bad'
  if (phase === 'idle') return idle?.reason === 'address' ? 'bad' : 'calm'
  return 'busy'
}

export function headline({ phase, idle, finding }: SyncStatus): string {
  if (phase === 'synced') return 'Up to date'
  if (phase === 'syncing') return 'Syncing…'
  if (phase === 'connecting') return 'Connecting…'
  if (phase === 'waiting') return finding?.code === 'offline' ? 'Offline' : 'No connection, trying again'
  if (phase === 'stopped') return 'Stopped'
  if (idle === null) return 'Starting…'
  if (idle.reason === 'signed-out') return 'Not signed in'
  if (idle.reason === 'no-address') return 'No Address yet'
  if (idle.reason === 'address') return 'The Address is not valid'
  return idle.reason === 'no-hosted-server' ? 'No hosted server' : 'Not syncing'
}
