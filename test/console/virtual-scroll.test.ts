import t from 'tap'
import {
  followScroll,
  isStuck,
  type ListPosition,
  rowsInView,
  scrolledHeight,
  scrollOf,
  topToShow,
} from '../../console/src/screens/documents/virtual-scroll.ts'

const SMALL = { rows: 1000, rowHeight: 40, viewport: 600 }
const LARGE = { rows: 1_000_000, rowHeight: 40, viewport: 600 }

t.test('a short list is scrolled as it is', async (t) => {
  t.equal(scrolledHeight(SMALL), 40_000)
  t.equal(followScroll({ top: 0, scrolled: 0 }, 12_345, SMALL), 12_345)
  t.equal(scrollOf(12_345, SMALL), 12_345)
  t.equal(scrollOf(0, { rows: 3, rowHeight: 40, viewport: 600 }), 0)
  t.same(rowsInView(0, { rows: 0, rowHeight: 40, viewport: 600 }), [0, 0])
  t.same(rowsInView(100, SMALL), [2, 18])
})

t.test(
  'every row of a long list can be reached with the scrollbar, by the wheel and by its number',
  async (t) => {
    const end = scrolledHeight(LARGE) - LARGE.viewport
    t.ok(scrolledHeight(LARGE) < 17_800_000)
    t.same(rowsInView(followScroll({ top: 0, scrolled: 0 }, end, LARGE), LARGE), [999_985, 1_000_000])
    t.same(
      rowsInView(followScroll({ top: 9e6, scrolled: 2e6 }, end / 2, LARGE), LARGE)[0],
      499_992,
      'the middle',
    )
    for (const row of [0, 1, 14, 15, 500_000, 999_999]) {
      const [first, after] = rowsInView(topToShow(row, 250_000, LARGE), LARGE)
      t.ok(first <= row && row < after, `row ${row}`)
    }
  },
)

t.test('a short movement in a long list moves the rows by as much', async (t) => {
  const before = { top: 20_000_000, scrolled: scrollOf(20_000_000, LARGE) }
  t.equal(followScroll(before, before.scrolled + 120, LARGE), 20_000_120)
  t.equal(followScroll(before, before.scrolled - 599, LARGE), 19_999_401)
})

t.test('the wheel never gets stuck before an end of the list, and reaches it', async (t) => {
  let position: ListPosition = { top: 30_000, scrolled: scrollOf(30_000, LARGE) }
  let steps = 0
  for (; position.top > 0 && steps < 1000; steps += 1) {
    const scrolled = Math.max(0, position.scrolled - 100)
    position = { top: followScroll(position, scrolled, LARGE), scrolled }
    if (isStuck(position, LARGE)) position = { ...position, scrolled: scrollOf(position.top, LARGE) }
  }
  t.equal(position.top, 0)
  t.equal(steps, 300, 'each step of 100 px moves the list by 100 px')
  t.equal(position.scrolled, 0)
})
