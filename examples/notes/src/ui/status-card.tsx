import { addressFinding } from '../diagnosis/words.ts'
import { kindOf, type Refusal } from '../sync/refusals.ts'
import { FindingCard } from './finding-card.tsx'
import { useServices, useWatched } from './services.ts'
import { headline, toneOf } from './sync-badge.tsx'

/** How many refused documents are listed. */
const MOST_SHOWN = 20

/** The state of the sync: the counts of documents, the problem if there is one, and refused documents. */
export function StatusCard() {
  const { syncer, refusals } = useServices()
  const status = useWatched(syncer)
  const refused = useWatched(refusals)
  const { idle, finding, sent, received } = status
  return (
    <section class="card" aria-label="Status">
      <p class="status-line">
        <span class={`dot is-${toneOf(status)}`} />
        <strong role="status">{headline(status)}</strong>
        {idle === null && (
          <span class="counts">
            {sent} sent, {received} received
          </span>
        )}
        {syncer.isHeldUp && (
          <button type="button" class="small quiet" onClick={() => syncer.again()}>
            Try again
          </button>
        )}
      </p>
      {idle?.reason === 'address' && <FindingCard finding={addressFinding(idle.faults)} />}
      {finding !== null && <FindingCard finding={finding} />}
      {refused.length > 0 && idle === null && <RefusalList refused={refused} />}
    </section>
  )
}

function RefusalList({ refused }: { readonly refused: readonly Refusal[] }) {
  const { library } = useServices()
  const { pictures, notes } = useWatched(library)
  const nameOf = (id: string) => pictures.get(id)?.name ?? notes.find((note) => note.id === id)?.title ?? id
  return (
    <div class="refusals">
      <strong>
        {refused.length === 1 ? 'One document stays' : `${refused.length} documents stay`} on this device,
        because the server does not accept {refused.length === 1 ? 'it' : 'them'}. Everything else syncs.
      </strong>
      <ul>
        {refused.slice(-MOST_SHOWN).map(({ id, reason }) => (
          <li key={id}>
            {kindOf(id)} “{nameOf(id)}” <small>{reason}</small>
          </li>
        ))}
      </ul>
    </div>
  )
}
