/** Is it well: the server's own health check in words. */

import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Icon } from '../../parts/icon.tsx'
import { Badge, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { type HealthFact, settingsVerdict, type UnsafeSetting, type Verdict, verdictsOf } from './health.ts'

const { health: words } = en.overview
const EVERY_MS = 15_000
const ICONS = { good: 'check', warn: 'warning', bad: 'error' } as const

interface DeepUp {
  readonly facts: readonly HealthFact[]
}

interface Configuration {
  readonly unsafe: readonly UnsafeSetting[]
}

export function HealthPart() {
  const { data, failure, reload } = useLoad(readHealth, 'health', { every: EVERY_MS })
  const settings = useLoad((signal) => ask<Configuration>('_settee/configuration', { signal }), 'settings')
  // The rest is shown even if the settings cannot be read.
  const others = settings.data === undefined ? [] : [settingsVerdict(settings.data.unsafe)]
  const isReady = !settings.isLoading || settings.data !== undefined
  const verdicts = data === undefined || !isReady ? undefined : verdictsOf(data.facts, others)
  const notes = verdicts?.filter(({ tone }) => tone === 'warn').length ?? 0
  const wrong = verdicts?.filter(({ tone }) => tone === 'bad').length ?? 0
  // The words below change with every reading, so screen readers announce the verdict alone.
  const state = verdicts !== undefined && failure === null && (
    <span role="status">
      {wrong > 0 ? (
        <Badge tone="bad">{words.ill(wrong)}</Badge>
      ) : (
        <Badge tone="good">{notes === 0 ? words.well : words.wellWith(notes)}</Badge>
      )}
    </span>
  )
  return (
    <Card title={words.title} {...(state && { actions: state })}>
      {failure !== null && <ErrorNotice failure={failure} title={words.unknown} onRetry={reload} />}
      {verdicts === undefined ? (
        failure === null && <Skeleton lines={4} />
      ) : (
        <ul class="verdicts">
          {verdicts.map((verdict) => (
            <VerdictRow key={verdict.name} verdict={verdict} />
          ))}
        </ul>
      )}
    </Card>
  )
}

/** A server that is not well answers 503, with the same facts. */
async function readHealth(signal: AbortSignal): Promise<DeepUp> {
  return ask<DeepUp>('_up', { query: { deep: '1' }, accepted: [503], signal })
}

function VerdictRow({ verdict: { tone, title, text, help, link } }: { readonly verdict: Verdict }) {
  return (
    <li class={`verdict is-${tone}`}>
      <Icon name={ICONS[tone]} />
      <div>
        <strong>
          <span class="for-readers">{words.tones[tone]}</span> {title}
        </strong>
        <p>{text}</p>
        {help !== null && <p class="verdict-help">{help}</p>}
        {link !== null && tone !== 'good' && <a href={link.href}>{link.text}</a>}
      </div>
    </li>
  )
}
