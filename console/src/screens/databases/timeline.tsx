/** What was overwritten and deleted in a database, the newest first, by days. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { SelectField, TextField } from '../../parts/field.tsx'
import { Icon } from '../../parts/icon.tsx'
import { Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { clock, date, exactTime } from '../../strings/format.ts'
import type { OverwrittenRow } from './database-answers.ts'
import { readOverwritten } from './database-calls.ts'
import { fromLocal, toLocal } from './local-time.ts'
import { useMore } from './use-more.ts'

const texts = en.databases.timeMachine

type Span = 'hour' | 'day' | 'week' | 'all' | 'chosen'

const SPAN_MS = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 } as const

interface TimelineProps {
  readonly database: string
  /** `since` and `until` choose a time. */
  readonly query: Route['query']
  /** Beside the title. */
  readonly actions: ComponentChildren
}

export function Timeline({ database, query, actions }: TimelineProps) {
  const isChosen = query.since !== undefined || query.until !== undefined
  const [span, setSpan] = useState<Span>(isChosen ? 'chosen' : 'all')
  const [since, setSince] = useState(toLocal(query.since))
  const [until, setUntil] = useState(toLocal(query.until))
  const range = rangeOf(span, since, until)
  const { data, failure, reload } = useLoad(
    (signal) => readOverwritten(database, range(), signal),
    JSON.stringify([database, span, ...(span === 'chosen' ? [since, until] : [])]),
  )
  const more = useMore(data, (bookmark) => readOverwritten(database, { ...range(), bookmark }))
  return (
    <Card title={texts.timeline} lead={texts.timelineLead} actions={actions}>
      <div class="toolbar">
        <SelectField
          label={texts.span}
          value={span}
          options={(['all', 'hour', 'day', 'week', 'chosen'] as const).map((each) => [
            each,
            texts.spans[each],
          ])}
          onChange={setSpan}
        />
        {span === 'chosen' && (
          <>
            <TextField label={texts.since} type="datetime-local" value={since} onChange={setSince} />
            <TextField label={texts.until} type="datetime-local" value={until} onChange={setUntil} />
          </>
        )}
      </div>
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={6} />}
      {more !== null && <Days database={database} rows={more.rows} />}
      {more?.rows.length === 0 && more.bookmark === null && (
        <Empty icon="restore" title={span === 'all' ? texts.nothing : texts.nothingThen}>
          {texts.nothingHelp}
        </Empty>
      )}
      {more !== null && (
        <div class="stack" aria-live="polite">
          {more.failure !== null && <ErrorNotice failure={more.failure} />}
          {more.bookmark !== null && (
            <div class="row">
              <Button isBusy={more.isBusy} onClick={more.load}>
                {more.rows.length === 0 ? texts.searchOn : en.common.more}
              </Button>
            </div>
          )}
        </div>
      )}
      {data?.known_since != null && <p class="fine">{texts.knownSince(exactTime(data.known_since))}</p>}
    </Card>
  )
}

function rangeOf(span: Span, since: string, until: string) {
  return (): { readonly since?: string | undefined; readonly until?: string | undefined } => {
    if (span === 'all') return {}
    if (span === 'chosen') return { since: fromLocal(since, 0), until: fromLocal(until, 59_999) }
    return { since: new Date(Date.now() - SPAN_MS[span]).toISOString() }
  }
}

function Days({ database, rows }: { readonly database: string; readonly rows: readonly OverwrittenRow[] }) {
  const days = Map.groupBy(rows, ({ at }) => (at === null ? texts.longAgo : date(at)))
  return (
    <>
      {[...days].map(([day, ofDay]) => (
        <section class="timeline" key={day}>
          <h3>{day}</h3>
          <ul>
            {ofDay.map((row) => (
              <TimelineRow key={row.id} database={database} row={row} />
            ))}
          </ul>
        </section>
      ))}
    </>
  )
}

function TimelineRow({ database, row }: { readonly database: string; readonly row: OverwrittenRow }) {
  const { id, at, deleted, overwritten } = row
  return (
    <li class={deleted ? 'is-deleted' : undefined}>
      <Icon name={deleted ? 'trash' : 'edit'} />
      <time class="soft" dateTime={at ?? undefined} title={at === null ? undefined : exactTime(at)}>
        {at === null ? '–' : clock(at)}
      </time>
      <a class="name" href={hashOf(['databases', database, 'time-machine', id])}>
        {id}
      </a>
      <span class="soft">{deleted ? texts.wasDeleted(overwritten) : texts.wasOverwritten(overwritten)}</span>
    </li>
  )
}
