import fc from 'fast-check'
import t from 'tap'
import { addHistograms, countOf, Histogram, percentile } from '../../src/core/histogram.ts'

const BOUNDS = [1, 2, 5, 10]

function histogramOf(values: readonly number[]): Histogram {
  const histogram = new Histogram(BOUNDS)
  for (const value of values) histogram.add(value)
  return histogram
}

t.test('a number belongs to the first bucket whose bound it does not exceed', async (t) => {
  const { counts, sum, bounds } = histogramOf([0, 1, 1.5, 2, 5, 5.1, 10, 11, 1000]).counts()
  t.strictSame(counts, [2, 2, 1, 2, 2])
  t.equal(sum, 1035.6)
  t.equal(bounds, BOUNDS)
})

t.test('counts stay as they were', async (t) => {
  const histogram = histogramOf([1])
  const before = histogram.counts()
  histogram.add(1)
  t.equal(countOf(before), 1)
  t.equal(countOf(histogram.counts()), 2)
})

t.test('two histograms together are one of all their numbers', async () => {
  const numbers = fc.array(fc.integer({ min: 0, max: 20 }))
  fc.assert(
    fc.property(numbers, numbers, (a, b) => {
      const together = addHistograms(histogramOf(a).counts(), histogramOf(b).counts())
      const whole = histogramOf([...a, ...b]).counts()
      return JSON.stringify(together) === JSON.stringify(whole)
    }),
  )
})

t.test('a percentile lies in the bucket of the number that it estimates', async (t) => {
  t.equal(percentile(histogramOf([]).counts(), 0.5), 0)
  t.equal(percentile(histogramOf([100, 100]).counts(), 0.5), 10, 'above all bounds: the last of them')
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 10 }), { minLength: 1 }),
      fc.constantFrom(0.01, 0.5, 0.9, 0.999, 1),
      (values, share) => {
        const sorted = values.toSorted((a, b) => a - b)
        const exact = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] as number
        const upper = BOUNDS.find((bound) => exact <= bound) as number
        const lower = BOUNDS[BOUNDS.indexOf(upper) - 1] ?? 0
        const estimate = percentile(histogramOf(values).counts(), share)
        return estimate >= lower && estimate <= upper
      },
    ),
  )
})
