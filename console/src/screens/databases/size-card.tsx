/** What takes the space of a database, as a bar and as a list. */
import { useEffect, useRef } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { bytes, percent } from '../../strings/format.ts'
import type { PartName, Sizes } from './database-answers.ts'
import { readSizes } from './database-calls.ts'

const texts = en.databases.sizes

interface SizeCardProps {
  readonly database: string
  /** When a compaction ends, the sizes are read again. */
  readonly isCompacting: boolean
}

export function SizeCard({ database, isCompacting }: SizeCardProps) {
  const { data, failure, reload } = useLoad((signal) => readSizes(database, signal), database)
  const wasCompacting = useRef(isCompacting)
  useEffect(() => {
    if (wasCompacting.current && !isCompacting) reload()
    wasCompacting.current = isCompacting
  }, [isCompacting])
  return (
    <Card title={texts.title}>
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={6} />}
      {data !== undefined && <SizeParts sizes={data} />}
    </Card>
  )
}

const ORDER: readonly PartName[] = [
  'live',
  'attachments',
  'indexes',
  'kept',
  'old',
  'tombstones',
  'local',
  'log',
  'free',
]

function SizeParts({ sizes }: { readonly sizes: Sizes }) {
  const all = sizes.file + sizes.views.bytes
  const parts = [
    ...ORDER.map((name) => ({ name, size: sizes.parts[name]?.bytes ?? 0 })),
    { name: 'views' as const, size: sizes.views.bytes },
  ].filter(({ size }) => size > 0)
  return (
    <>
      <div class="size-bar" aria-hidden="true">
        {parts.map(({ name, size }) => (
          <span key={name} class={`is-${name}`} style={{ inlineSize: `${(100 * size) / all}%` }} />
        ))}
      </div>
      <dl class="size-parts">
        {parts.map(({ name, size }) => (
          <div key={name}>
            <dt>
              <span class={`swatch is-${name}`} aria-hidden="true" />
              {texts.names[name]}
              <span class="hint">{texts.hints[name]}</span>
            </dt>
            <dd>
              {bytes(size)} <span class="soft">{percent(size / all)}</span>
            </dd>
          </div>
        ))}
        <div class="is-sum">
          <dt>{texts.all}</dt>
          <dd>{bytes(all)}</dd>
        </div>
      </dl>
    </>
  )
}
