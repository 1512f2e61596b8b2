/** How a database has grown in the last month: a bar for each day. */
import { useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { bytes, date, number } from '../../strings/format.ts'
import type { DatabaseRow } from './database-answers.ts'
import { readGrowth } from './database-calls.ts'
import { type PlottedDay, plottedDays } from './growth-days.ts'

const texts = en.databases.growth

type Measure = 'documents' | 'file'

export function GrowthCard({ database, now }: { readonly database: string; readonly now: DatabaseRow }) {
  const [measure, setMeasure] = useState<Measure>('documents')
  const { data, failure, reload } = useLoad((signal) => readGrowth(database, signal), database)
  const today = new Date().toISOString().slice(0, 10)
  const size = { documents: now.doc_count, file: now.sizes.file }
  const actions = (
    <>
      {(['documents', 'file'] as const).map((each) => (
        <Button key={each} isSmall isPressed={each === measure} onClick={() => setMeasure(each)}>
          {texts.measures[each]}
        </Button>
      ))}
    </>
  )
  return (
    <Card title={texts.title} actions={actions}>
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={6} />}
      {data !== undefined && <Bars days={plottedDays(data, size, today)} measure={measure} />}
    </Card>
  )
}

const WIDTH = 310
const HEIGHT = 120
const STEP = WIDTH / 31

function Bars({ days, measure }: { readonly days: readonly PlottedDay[]; readonly measure: Measure }) {
  const shown = measure === 'file' ? bytes : number
  const values = days.map((day) => day[measure])
  const most = Math.max(1, ...values.map((value) => value ?? 0))
  const first = days.find((day) => day[measure] !== null) ?? days[0]!
  const last = days.at(-1)!
  const change = (last[measure] ?? 0) - (first[measure] ?? 0)
  const known = values.filter((value) => value !== null).length
  const summary =
    known < 2
      ? texts.begun
      : texts.summary(date(first.date), `${change < 0 ? '−' : '+'}${shown(Math.abs(change))}`)
  return (
    <figure class="growth">
      <p class="growth-now">
        <strong>
          {measure === 'file' ? bytes(last.file ?? 0) : en.words.documents(last.documents ?? 0)}
        </strong>{' '}
        <span class="soft">{summary}</span>
      </p>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true" focusable="false">
        <line x1="0" x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
        {days.map((day, at) => {
          const height = Math.max(day[measure] === null ? 0 : 1, ((day[measure] ?? 0) / most) * (HEIGHT - 4))
          return (
            <rect key={day.date} x={at * STEP + 1} y={HEIGHT - height} width={STEP - 2} height={height}>
              <title>{`${date(day.date)}: ${shown(day[measure] ?? 0)}`}</title>
            </rect>
          )
        })}
      </svg>
      <div class="growth-axis" aria-hidden="true">
        <span>{date(days[0]!.date)}</span>
        <span>{texts.today}</span>
      </div>
      <details class="fine">
        <summary>{texts.asTable}</summary>
        <table class="table is-small">
          <caption class="for-readers">{texts.title}</caption>
          <thead>
            <tr>
              <th scope="col">{texts.day}</th>
              <th scope="col" class="is-number">
                {texts.measures[measure]}
              </th>
            </tr>
          </thead>
          <tbody>
            {days
              .filter((day) => day[measure] !== null)
              .toReversed()
              .map((day) => (
                <tr key={day.date}>
                  <th scope="row">{date(day.date)}</th>
                  <td class="is-number" data-title={texts.measures[measure]}>
                    {shown(day[measure] ?? 0)}
                  </td>
                </tr>
              ))}
          </tbody>
        </table>
      </details>
    </figure>
  )
}
