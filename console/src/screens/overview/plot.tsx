/** A plot, drawn by uPlot. It is for the eyes: the texts beside it and the table say the same. */
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { dayLabel, timeLabel } from '../../strings/format.ts'
import { type PlotShape, valueText } from './plots.ts'
import { meanOf, rateFactor, type SampleSeries, timesOf } from './series.ts'

interface PlotProps {
  readonly shape: PlotShape
  readonly series: SampleSeries
  /** Called with the point under the pointer; null: there is none. */
  readonly onPoint: (at: number | null) => void
}

/** In CSS pixels. */
const HEIGHT = 150
const AXIS_WIDTH = 62
const LABEL_WIDTH = 64
/** The pointer's time is marked in all plots. */
const SYNC = 'overview'

export default function Plot({ shape, series, onPoint }: PlotProps) {
  const host = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const scheme = useScheme()
  useEffect(() => {
    const element = host.current
    if (element === null) return undefined
    const made = new uPlot(
      optionsOf(shape, series, element.clientWidth, onPoint),
      dataOf(shape, series),
      element,
    )
    plot.current = made
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      made.destroy()
    }
    // New samples of the same period only change the data.
  }, [shape, series.period, scheme, factorOf(shape, series)])
  useEffect(() => plot.current?.setData(dataOf(shape, series)), [series])
  return <div class="plot" ref={host} aria-hidden="true" />
}

/** Which colours are in effect; a change draws the plot anew. */
function useScheme(): string {
  const query = matchMedia('(prefers-color-scheme: dark)')
  const [isDark, setDark] = useState(query.matches)
  useEffect(() => {
    const onChange = () => setDark(query.matches)
    query.addEventListener('change', onChange)
    return () => query.removeEventListener('change', onChange)
  }, [])
  return isDark ? 'dark' : 'light'
}

function factorOf({ kind, lines }: PlotShape, series: SampleSeries): 1 | 60 {
  if (kind !== 'rate') return 1
  const values = lines.flatMap(({ column }) => meanOf(series, column).map((value) => value ?? 0))
  return rateFactor(values.reduce((greatest, value) => Math.max(greatest, value), 0))
}

function dataOf(shape: PlotShape, series: SampleSeries): uPlot.AlignedData {
  const factor = factorOf(shape, series)
  const lines = shape.lines.map(({ column }) =>
    meanOf(series, column).map((value) => (value === null ? null : value * factor)),
  )
  return [timesOf(series), ...lines]
}

function optionsOf(
  shape: PlotShape,
  series: SampleSeries,
  width: number,
  onPoint: PlotProps['onPoint'],
): uPlot.Options {
  const style = getComputedStyle(document.documentElement)
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim()
  const font = `12px ${getComputedStyle(document.body).fontFamily}`
  const factor = factorOf(shape, series)
  const isAlone = shape.lines.length === 1
  const axis = {
    font,
    stroke: colour('soft'),
    grid: { stroke: colour('line'), width: 1 },
    ticks: { show: false },
  }
  const label = series.period === 'day' ? timeLabel : dayLabel
  return {
    width,
    height: HEIGHT,
    padding: [8, 10, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: SYNC }, points: { size: 7 } },
    scales: {
      x: { time: true },
      // From zero, so that the height of a curve has a meaning.
      y: { range: (_plot, _least, greatest) => [0, greatest > 0 ? greatest * 1.08 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 28,
        space: LABEL_WIDTH,
        values: (_plot, times) => times.map((time) => label(time * 1000)),
      },
      {
        ...axis,
        size: AXIS_WIDTH,
        space: 34,
        values: (_plot, values) =>
          values.map((value) =>
            isEvenly(shape, value) ? valueText(shape.kind, value / factor, factor) : '',
          ),
      },
    ],
    series: [
      {},
      ...shape.lines.map((line) => ({
        stroke: colour(line.colour),
        width: 1.6,
        ...(isAlone && { fill: `${colour(line.colour)}24` }),
        points: { show: (plot: uPlot, at: number) => hasFewPoints(plot.data[at]), size: 4 },
      })),
    ],
    hooks: {
      setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)],
    },
  }
}

/** Half a connection does not exist. */
function isEvenly({ kind }: PlotShape, value: number): boolean {
  return kind !== 'count' || Number.isInteger(value)
}

/** A line of one point would be invisible, as after the first minute of a server. */
function hasFewPoints(values: ArrayLike<number | null | undefined> | undefined): boolean {
  let known = 0
  for (let at = 0; at < (values?.length ?? 0); at += 1) if (values?.[at] != null) known += 1
  return known > 0 && known < 5
}
