/** Days for the plot of growth: those without a write have the size of the day before. Pure. */
import type { DaySize } from './database-answers.ts'

export interface PlottedDay {
  readonly date: string
  /** null: before the first size that is known. */
  readonly documents: number | null
  readonly file: number | null
}

const DAY_MS = 24 * 60 * 60 * 1000

/**
 * @param days with a write, the oldest first
 * @param now the present size, which counts for today
 * @param today as `2025-03-01`
 */
export function plottedDays(
  days: readonly DaySize[],
  now: { readonly documents: number; readonly file: number },
  today: string,
  count = 31,
): readonly PlottedDay[] {
  const byDate = new Map(days.map((day) => [day.date, day]))
  let known: DaySize | undefined
  return Array.from({ length: count }, (_, at) => {
    const date = new Date(Date.parse(today) - (count - 1 - at) * DAY_MS).toISOString().slice(0, 10)
    if (date === today) return { date, ...now }
    known = byDate.get(date) ?? known
    return { date, documents: known?.doc_count ?? null, file: known?.file ?? null }
  })
}
