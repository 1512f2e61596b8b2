/** What the plots of the overview show. */
import { en } from '../../strings/en.ts'
import { amount, bytes, number } from '../../strings/format.ts'

export interface PlotLine {
  readonly column: string
  readonly name: string
  /** The title of its column in the table. */
  readonly head: string
  /** The name of its colour among the custom properties of the style. */
  readonly colour: 'accent' | 'info' | 'warn' | 'bad'
}

export interface PlotShape {
  readonly id: string
  readonly title: string
  /** The first one is the one that the summary is about. */
  readonly lines: readonly PlotLine[]
  /** `rate`: per second or minute; `count`; `bytes`. */
  readonly kind: 'rate' | 'count' | 'bytes'
  /** Whether small values are what matters. */
  readonly isScarce?: true
}

const { plots: words } = en.overview

export const PLOTS: readonly PlotShape[] = [
  {
    id: 'traffic',
    title: words.traffic,
    lines: [
      { column: 'answers_ok', name: words.ok, head: words.heads.ok, colour: 'accent' },
      { column: 'answers_4xx', name: words.clientErrors, head: words.heads.clientErrors, colour: 'warn' },
      { column: 'answers_5xx', name: words.serverErrors, head: words.heads.serverErrors, colour: 'bad' },
    ],
    kind: 'rate',
  },
  {
    id: 'saves',
    title: words.saves,
    lines: [{ column: 'saves', name: words.savesLine, head: words.heads.saves, colour: 'accent' }],
    kind: 'rate',
  },
  {
    id: 'feeds',
    title: words.feeds,
    lines: [
      { column: 'feeds', name: words.feedsLine, head: words.heads.feeds, colour: 'accent' },
      { column: 'connections', name: words.connectionsLine, head: words.heads.connections, colour: 'info' },
    ],
    kind: 'count',
  },
  {
    id: 'memory',
    title: words.memory,
    lines: [{ column: 'memory_bytes', name: words.memoryLine, head: words.heads.memory, colour: 'accent' }],
    kind: 'bytes',
  },
  {
    id: 'data',
    title: words.data,
    lines: [{ column: 'data_bytes', name: words.dataLine, head: words.heads.data, colour: 'accent' }],
    kind: 'bytes',
  },
  {
    id: 'free',
    title: words.free,
    lines: [{ column: 'free_bytes', name: words.freeLine, head: words.heads.free, colour: 'accent' }],
    kind: 'bytes',
    isScarce: true,
  },
]

/** Less than one in twenty minutes, in 1/s: it would be written as `0/min`. */
const LEAST_RATE = 0.05 / 60

/** Writes a value of a plot. @param factor 60: rates are per minute (see series.ts) */
export function valueText(kind: PlotShape['kind'], value: number, factor: 1 | 60 = 1): string {
  switch (kind) {
    case 'rate':
      if (value < LEAST_RATE) return number(0)
      return factor === 60 ? words.perMinute(amount(value * 60)) : words.perSecond(amount(value))
    case 'count':
      return number(value)
    case 'bytes':
      return bytes(value)
  }
}
