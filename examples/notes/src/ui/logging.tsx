import { useState } from 'preact/hooks'
import { logText, type SyncEvent } from '../log.ts'
import { useServices, useWatched } from './services.ts'
import { exactly } from './times.ts'

/** How many events are shown at first, and how many more with each click. */
const SHOWN_AT_ONCE = 500

/** An event in plain words. */
function wordsOf({ act, direction, docs }: SyncEvent): string {
  if (act === 'up to date') return direction === 'push' ? 'all sent' : 'all received'
  const way = { push: 'sent', pull: 'received', both: '' }[direction]
  return [act, way, docs > 0 ? docs : ''].filter((part) => part !== '').join(' ')
}

export function Logging() {
  const { settings, log } = useServices()
  const { isLogging } = useWatched(settings)
  const events = useWatched(log)
  return (
    <>
      <label class="card toggle">
        <span>
          Main process logging
          <small>
            Keeps the last 5,000 sync events on this device. Names and passwords are removed from addresses.
            Turning this off deletes the events.
          </small>
        </span>
        <input
          type="checkbox"
          role="switch"
          aria-checked={isLogging}
          checked={isLogging}
          onChange={(event) => settings.setLogging(event.currentTarget.checked)}
        />
      </label>
      {isLogging && <EventList events={events} />}
    </>
  )
}

function EventList({ events }: { readonly events: readonly SyncEvent[] }) {
  const [most, setMost] = useState(SHOWN_AT_ONCE)
  return (
    <section class="card" aria-label="Events">
      <p class="status-line">
        <strong>{events.length === 1 ? 'One event' : `${events.length} events`}</strong>
        <span class="counts">{events.length > most ? `showing the last ${most}` : ''}</span>
        <button
          type="button"
          class="small quiet"
          disabled={events.length === 0}
          onClick={() => save(logText(events))}
        >
          Save as a file
        </button>
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must reach a list that scrolls */}
      <ol class="events" tabIndex={0} aria-label="Events, newest first">
        {events
          .slice(-most)
          .reverse()
          .map((event, at) => (
            <EventRow event={event} key={`${event.time} ${at}`} />
          ))}
      </ol>
      {events.length > most && (
        <button type="button" class="small quiet" onClick={() => setMost(most + SHOWN_AT_ONCE)}>
          Show older events
        </button>
      )}
    </section>
  )
}

function EventRow({ event }: { readonly event: SyncEvent }) {
  const { time, mode, error } = event
  return (
    <li class={error === null ? '' : 'is-bad'}>
      <time dateTime={new Date(time).toISOString()}>{exactly(time)}</time>
      <span>
        {wordsOf(event)}
        <small>{mode}</small>
      </span>
      {error !== null && <span class="event-error">{error}</span>}
    </li>
  )
}

function save(text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/tab-separated-values' }))
  const link = document.createElement('a')
  link.href = url
  link.download = `notes-sync-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, '-')}.tsv`
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
