/** A histogram as Prometheus defines it, in constant memory. */

/** The counts of a histogram at one moment. */
export interface HistogramCounts {
  /** Upper bounds of the buckets, inclusive, ascending. */
  readonly bounds: readonly number[]
  /** The count of each bucket, then that of the numbers above all bounds. */
  readonly counts: readonly number[]
  readonly sum: number
}

export class Histogram {
  readonly #bounds: readonly number[]
  readonly #counts: number[]
  #sum = 0

  /** @param bounds ascending */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#counts = new Array<number>(bounds.length + 1).fill(0)
  }

  /** Counts a number. Allocates nothing, since every request and every commit calls it. */
  add(value: number): void {
    const bounds = this.#bounds
    let at = 0
    while (at < bounds.length && value > (bounds[at] as number)) at += 1
    this.#counts[at] = (this.#counts[at] as number) + 1
    this.#sum += value
  }

  /** A copy of the counts. */
  counts(): HistogramCounts {
    return { bounds: this.#bounds, counts: [...this.#counts], sum: this.#sum }
  }
}

/** The count of all buckets together. */
export function countOf({ counts }: HistogramCounts): number {
  return counts.reduce((sum, count) => sum + count, 0)
}

/** The sum of two histograms with the same bounds. */
export function addHistograms(a: HistogramCounts, b: HistogramCounts): HistogramCounts {
  return {
    bounds: a.bounds,
    counts: a.counts.map((count, at) => count + (b.counts[at] ?? 0)),
    sum: a.sum + b.sum,
  }
}

/**
 * Estimates a percentile, as if the numbers of a bucket were spread evenly, and those above all bounds equalled the last
 * bound.
 * @param share between 0 and 1
 * @returns 0 when nothing was counted
 */
export function percentile(histogram: HistogramCounts, share: number): number {
  const { bounds, counts } = histogram
  const wanted = countOf(histogram) * share
  let before = 0
  for (const [at, bound] of bounds.entries()) {
    const count = counts[at] ?? 0
    if (count > 0 && before + count >= wanted) {
      const lower = bounds[at - 1] ?? 0
      return lower + (bound - lower) * ((wanted - before) / count)
    }
    before += count
  }
  return before < wanted ? (bounds.at(-1) ?? 0) : 0
}
