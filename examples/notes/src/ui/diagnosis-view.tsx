import type { Check, Diagnosis } from '../diagnosis/finding.ts'
import { FindingCard } from './finding-card.tsx'
import { Icon } from './icons.tsx'

const STATES: Readonly<Record<Check['state'], string>> = {
  fine: 'fine',
  wrong: 'wrong',
  skipped: 'not checked',
}

/** The checks and their results. */
export function DiagnosisView({ diagnosis }: { readonly diagnosis: Diagnosis | 'running' }) {
  if (diagnosis === 'running') {
    return (
      <p class="working" role="status">
        <span class="dot is-busy" /> Checking the network… This takes up to 30 seconds.
      </p>
    )
  }
  return (
    <section class="diagnosis" aria-label="Network diagnosis">
      <ul class="checks">
        {diagnosis.checks.map(({ name, state }) => (
          <li class={`is-${state}`} key={name}>
            <span class="mark">
              {state === 'fine' && <Icon name="check" />}
              {state === 'wrong' && <Icon name="close" />}
            </span>
            {name}
            <span class="unseen">: {STATES[state]}</span>
          </li>
        ))}
      </ul>
      {diagnosis.finding === null ? (
        <p class="notice is-good" role="status">
          Everything works. You can sync with this address.
        </p>
      ) : (
        <FindingCard finding={diagnosis.finding} />
      )}
    </section>
  )
}
