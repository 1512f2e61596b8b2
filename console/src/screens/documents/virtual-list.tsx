import type { ComponentChildren } from 'preact'
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import {
  followScroll,
  isStuck,
  type ListPosition,
  type ListSize,
  rowsInView,
  scrolledHeight,
  scrollOf,
  topToShow,
} from './virtual-scroll.ts'

interface VirtualListProps {
  readonly label: string
  readonly rows: number
  /** In px. */
  readonly rowHeight: number
  /** The row that the keyboard acts on. */
  readonly active: number
  readonly onActive: (row: number) => void
  readonly isSelected: (row: number) => boolean
  /** Called with the first row that is rendered and the row after the last. */
  readonly onView: (first: number, after: number) => void
  /** Called for keys other than those that move. */
  readonly onKey: (event: KeyboardEvent) => void
  /** The cells of a row. */
  readonly children: (row: number) => ComponentChildren
}

/** Rows above and below the view that are rendered too. */
const MARGIN = 8
/** How long the list must stand still before the element's place is put right, in ms. */
const IDLE_MS = 150

/** A grid of any number of rows, of which only those in view are rendered. */
export function VirtualList(props: VirtualListProps) {
  const { label, rows, rowHeight, active, children, onView, isSelected } = props
  const id = useId()
  const scroller = useRef<HTMLDivElement>(null)
  const position = useRef<ListPosition>({ top: 0, scrolled: 0 })
  const idle = useRef<ReturnType<typeof setTimeout>>(undefined)
  const [viewport, setViewport] = useState(0)
  const [, render] = useState(0)
  const size: ListSize = { rows, rowHeight, viewport }
  const moveTo = (top: number) => {
    if (scroller.current === null) return
    scroller.current.scrollTop = scrollOf(top, size)
    position.current = { top, scrolled: scroller.current.scrollTop }
    render((count) => count + 1)
  }
  useLayoutEffect(() => {
    const element = scroller.current
    if (element === null) return undefined
    const observer = new ResizeObserver(() => setViewport(element.clientHeight))
    observer.observe(element)
    setViewport(element.clientHeight)
    return () => {
      observer.disconnect()
      clearTimeout(idle.current)
    }
  }, [])
  useEffect(() => {
    if (viewport > 0) moveTo(topToShow(active, position.current.top, size))
  }, [active, rows, rowHeight, viewport])
  const [first, after] = rowsInView(position.current.top, size)
  const onScroll = () => {
    const scrolled = scroller.current?.scrollTop ?? 0
    if (scrolled === position.current.scrolled) return
    position.current = { top: followScroll(position.current, scrolled, size), scrolled }
    if (isStuck(position.current, size)) moveTo(position.current.top)
    else render((count) => count + 1)
    clearTimeout(idle.current)
    idle.current = setTimeout(() => moveTo(position.current.top), IDLE_MS)
  }
  const from = Math.max(0, first - MARGIN)
  const to = Math.min(rows, after + MARGIN)
  useEffect(() => onView(from, to), [from, to, onView])
  const offset = position.current.scrolled - position.current.top
  return (
    <div
      ref={scroller}
      class="virtual-list"
      role="grid"
      aria-label={label}
      aria-rowcount={rows}
      aria-multiselectable="true"
      aria-activedescendant={active >= from && active < to ? `${id}-${active}` : undefined}
      tabIndex={0}
      onScroll={onScroll}
      onKeyDown={(event) => onKeyDown(event, props, Math.max(1, after - first - 2))}
    >
      <div role="rowgroup" class="virtual-rows" style={{ blockSize: `${scrolledHeight(size)}px` }}>
        {Array.from({ length: to - from }, (_, n) => {
          const row = from + n
          return (
            <div
              key={row}
              id={`${id}-${row}`}
              role="row"
              aria-rowindex={row + 1}
              aria-selected={isSelected(row)}
              class={row === active ? 'virtual-row is-active' : 'virtual-row'}
              style={{ blockSize: `${rowHeight}px`, transform: `translateY(${row * rowHeight + offset}px)` }}
            >
              {children(row)}
            </div>
          )
        })}
      </div>
    </div>
  )
}

function onKeyDown(
  event: KeyboardEvent,
  { active, rows, onActive, onKey }: VirtualListProps,
  pageRows: number,
): void {
  if (event.target !== event.currentTarget) return
  const moves: Readonly<Record<string, number>> = {
    ArrowDown: active + 1,
    ArrowUp: active - 1,
    PageDown: active + pageRows,
    PageUp: active - pageRows,
    Home: 0,
    End: rows - 1,
  }
  const next = event.ctrlKey || event.metaKey || event.altKey ? undefined : moves[event.key]
  if (next === undefined) {
    onKey(event)
    return
  }
  event.preventDefault()
  onActive(Math.max(0, Math.min(rows - 1, next)))
}
