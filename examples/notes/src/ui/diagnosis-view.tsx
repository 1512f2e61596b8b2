import type { Check, Diagnosis } from '../diagnosis/finding.ts'
import { FindingCard } from './finding-card.tsx'
import { Icon } from './icons.tsx'

const STATES: Readonly<Record<Check['state'], string>> = {
  fine: 'fine',
  wrong: 'wrong',
  skipped: 'not looked at',
}

/** What was looked at, and what came of it. */
export function DiagnosisView({ diagnosis }: { readonly diagnosis: Diagnosis | 'running' }) {
  if (diagnosis === 'running') {
    return (
      <p class="working" role="status">
        <span class="dot is-busy" /> Looking at the network… this takes up to half a minute.
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
          All is well: this address can be synced with.
        </p>
      ) : (
        <FindingCard finding={diagnosis.finding} />
      )}
    </section>
  )
}
