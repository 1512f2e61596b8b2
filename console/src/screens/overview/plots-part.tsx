/** What the server did in the last day or month: plots, or a table with the same numbers. */
import type { ComponentType } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { DataTable } from '../../parts/table.tsx'
import { en } from '../../strings/en.ts'
import { dayLabel, dayTimeLabel, timeLabel } from '../../strings/format.ts'
import { PLOTS, type PlotShape, valueText } from './plots.ts'
import {
  drawnOf,
  hasSamples,
  meanOf,
  type Period,
  rateFactor,
  rowsOf,
  type SampleSeries,
  summaryOf,
  timesOf,
} from './series.ts'

const { plots: words } = en.overview
/** A new sample comes every minute. */
const EVERY_MS = 60_000

export function PlotsPart() {
  const [period, setPeriod] = useState<Period>('day')
  const [isTable, setTable] = useState(false)
  const { data, failure, reload } = useLoad(
    (signal) => ask<SampleSeries>('_settee/samples', { query: { period }, signal }),
    period,
    { every: EVERY_MS },
  )
  return (
    <section class="plots" aria-label={words.title}>
      <header class="plots-head">
        <h2>{words.title}</h2>
        <div class="actions">
          <Button isSmall isPressed={isTable} onClick={() => setTable(!isTable)}>
            {words.asTable}
          </Button>
          <fieldset class="switch">
            <legend class="for-readers">{words.period}</legend>
            {(['day', 'month'] as const).map((each) => (
              <Button key={each} isSmall isPressed={period === each} onClick={() => setPeriod(each)}>
                {words[each]}
              </Button>
            ))}
          </fieldset>
        </div>
      </header>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      <PlotsContent series={data} isTable={isTable} isLost={failure !== null} />
    </section>
  )
}

interface ContentProps {
  readonly series: SampleSeries | undefined
  readonly isTable: boolean
  readonly isLost: boolean
}

function PlotsContent({ series, isTable, isLost }: ContentProps) {
  if (series !== undefined && !hasSamples(series)) {
    return (
      <Card>
        <Empty title={words.emptyTitle} icon="overview">
          {words.emptyHelp}
        </Empty>
      </Card>
    )
  }
  if (isTable && series !== undefined) return <NumbersTable series={series} />
  if (series === undefined && isLost) return null
  return <PlotGrid series={series} />
}

type PlotComponent = ComponentType<{
  readonly shape: PlotShape
  readonly series: SampleSeries
  readonly onPoint: (at: number | null) => void
}>

function PlotGrid({ series }: { readonly series: SampleSeries | undefined }) {
  const [point, setPoint] = useState<number | null>(null)
  const [Plot, setPlot] = useState<PlotComponent | null>(null)
  const [isLost, setLost] = useState(false)
  const drawn = useMemo(() => series && drawnOf(series), [series])
  useEffect(() => {
    import('./plot.tsx').then(
      (module) => setPlot(() => module.default),
      () => setLost(true),
    )
  }, [])
  return (
    <>
      {isLost && <Notice tone="bad" title={en.shell.screenNotLoaded} isAnnounced />}
      <div class="plot-grid">
        {PLOTS.map((shape) => (
          <figure class="card plot-card" key={shape.id}>
            <figcaption>
              <h3>{shape.title}</h3>
              {series === undefined || drawn === undefined ? (
                <Skeleton lines={1} />
              ) : (
                <Readout shape={shape} series={series} drawn={drawn} point={point} />
              )}
            </figcaption>
            {drawn !== undefined && Plot !== null ? (
              <Plot shape={shape} series={drawn} onPoint={setPoint} />
            ) : (
              <div class="plot" />
            )}
          </figure>
        ))}
      </div>
    </>
  )
}

interface ReadoutProps {
  readonly shape: PlotShape
  readonly series: SampleSeries
  readonly drawn: SampleSeries
  /** Of `drawn`, under the pointer. */
  readonly point: number | null
}

/** The values at the pointer, or the newest, with mean and peak of the first line. */
function Readout({ shape, series, drawn, point }: ReadoutProps) {
  const label = series.period === 'day' ? timeLabel : dayTimeLabel
  const at = point === null ? undefined : timesOf(drawn)[point]
  return (
    <>
      <ul class="plot-lines">
        {shape.lines.map(({ column, name, colour }) => {
          const value =
            point === null ? (summaryOf(series, column)?.now ?? null) : (meanOf(drawn, column)[point] ?? null)
          return (
            <li key={column}>
              <i class={`plot-key is-${colour}`} aria-hidden="true" />
              <span>{name}</span>
              <strong>{shown(shape, value)}</strong>
            </li>
          )
        })}
      </ul>
      <p class="fine">{at === undefined ? summaryText(shape, series) : words.at(label(at * 1000))}</p>
    </>
  )
}

function shown({ kind }: PlotShape, value: number | null): string {
  return value === null ? words.unknown : valueText(kind, value, rateFactor(value))
}

function summaryText(shape: PlotShape, series: SampleSeries): string {
  const summary = summaryOf(series, shape.lines[0]?.column ?? '')
  if (summary === null) return words.noValues
  const label = series.period === 'day' ? timeLabel : dayTimeLabel
  const { mean, peak, peakAt, least, leastAt } = summary
  return shape.isScarce
    ? words.least(shown(shape, mean), shown(shape, least), label(leastAt * 1000))
    : words.summary(shown(shape, mean), shown(shape, peak), label(peakAt * 1000))
}

/** The numbers of all plots by the hour or day. */
function NumbersTable({ series }: { readonly series: SampleSeries }) {
  const lines = PLOTS.flatMap((shape) => shape.lines.map((line) => ({ shape, line })))
  const offset = -60 * new Date().getTimezoneOffset()
  const rows = rowsOf(
    series,
    lines.map(({ line }) => line.column),
    offset,
  )
  const isDay = series.period === 'day'
  return (
    <Card isFlush title={isDay ? words.tableOfDay : words.tableOfMonth}>
      <DataTable
        caption={words.title}
        keyOf={(row) => String(row.time)}
        rows={rows}
        columns={[
          {
            key: 'time',
            title: isDay ? words.hour : words.dayColumn,
            isMain: true,
            cell: (row) => <span class="no-wrap">{(isDay ? timeLabel : dayLabel)(row.time * 1000)}</span>,
          },
          ...lines.map(({ shape, line }) => ({
            key: line.column,
            title: line.head,
            isNumber: true,
            cell: (row: (typeof rows)[number]) => shown(shape, row.means[line.column] ?? null),
          })),
        ]}
      />
    </Card>
  )
}
