/**
 * The arithmetic of a list that renders only the rows in view. Browsers limit the height of an element: Firefox to 17.8
 * million px, Chrome to 33.5 million. A million rows are higher, so the scrolled element is lower than the list. Short
 * movements are then followed exactly, and long ones, such as by the scrollbar, in proportion.
 */

/** In px. */
const MAX_HEIGHT = 8_000_000
/** In px; this far from both ends, the element and the list move alike, so that the wheel reaches the ends. */
const EXACT_END = 100_000

export interface ListSize {
  readonly rows: number
  /** In px, as is `viewport`, the height that can be seen. */
  readonly rowHeight: number
  readonly viewport: number
}

/** `top`: where the view begins in the list; `scrolled`: how far the element is scrolled; both in px. */
export interface ListPosition {
  readonly top: number
  readonly scrolled: number
}

/** @returns the height of the scrolled element, in px */
export function scrolledHeight({ rows, rowHeight }: ListSize): number {
  return Math.min(rows * rowHeight, MAX_HEIGHT)
}

function greatestTop({ rows, rowHeight, viewport }: ListSize): number {
  return Math.max(0, rows * rowHeight - viewport)
}

function greatestScroll(size: ListSize): number {
  return Math.max(0, scrolledHeight(size) - size.viewport)
}

function between(least: number, value: number, greatest: number): number {
  return Math.min(Math.max(least, value), greatest)
}

/** @returns how far the element is scrolled when the view begins at `top` */
export function scrollOf(top: number, size: ListSize): number {
  return mapped(top, greatestTop(size), greatestScroll(size))
}

/** Maps a position in a range of one length to one of another: exactly near the ends, in proportion between. */
function mapped(value: number, from: number, to: number): number {
  const within = between(0, value, from)
  if (from === to || within <= EXACT_END) return within
  if (within >= from - EXACT_END) return to - (from - within)
  return EXACT_END + ((within - EXACT_END) * (to - 2 * EXACT_END)) / (from - 2 * EXACT_END)
}

/** @returns where the view begins after the user has scrolled the element to `scrolled` */
export function followScroll(before: ListPosition, scrolled: number, size: ListSize): number {
  const [most, greatest] = [greatestScroll(size), greatestTop(size)]
  if (most === greatest) return between(0, scrolled, greatest)
  const moved = scrolled - before.scrolled
  if (Math.abs(moved) <= size.viewport) return between(0, before.top + moved, greatest)
  return mapped(scrolled, most, greatest)
}

/** Whether one of list and element is at an end and the other is not, so that the user could not scroll on. */
export function isStuck({ top, scrolled }: ListPosition, size: ListSize): boolean {
  const [most, greatest] = [greatestScroll(size), greatestTop(size)]
  if (most === greatest) return false
  return scrolled <= 0 !== top <= 0 || scrolled >= most - 1 !== top >= greatest - 1
}

/** @returns the first row in view and the row after the last */
export function rowsInView(top: number, { rows, rowHeight, viewport }: ListSize): readonly [number, number] {
  const first = between(0, Math.floor(top / rowHeight), rows)
  return [first, between(first, Math.ceil((top + viewport) / rowHeight), rows)]
}

/** @returns where the view must begin, nearest to `top`, so that a row is in view */
export function topToShow(row: number, top: number, size: ListSize): number {
  const start = row * size.rowHeight
  const least = start + size.rowHeight - size.viewport
  return between(0, Math.min(Math.max(top, least), start), greatestTop(size))
}
