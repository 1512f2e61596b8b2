import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'

export interface Column<Row> {
  readonly key: string
  readonly title: string
  /** Numbers stand at the right. */
  readonly isNumber?: boolean
  /** Whether it is the row's header; one of the columns is. */
  readonly isMain?: boolean
  /** Whether its title is for screen readers only, as above buttons. */
  readonly isUntitled?: boolean
  readonly cell: (row: Row) => ComponentChildren
}

interface DataTableProps<Row> {
  /** Read to screen readers. */
  readonly caption: string
  readonly columns: readonly Column<Row>[]
  readonly rows: readonly Row[]
  readonly keyOf: (row: Row) => string
}

/** A table, whose rows become cards on a phone. */
export function DataTable<Row>({ caption, columns, rows, keyOf }: DataTableProps<Row>) {
  const frame = useRef<HTMLDivElement>(null)
  const isWide = useOverflow(frame)
  return (
    // The keyboard scrolls what it can focus.
    <div
      class="table-frame"
      ref={frame}
      {...(isWide && { tabIndex: 0, role: 'region', 'aria-label': caption })}
    >
      <table class="table">
        <caption class="for-readers">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ key, title, isNumber, isUntitled }) => (
              <th key={key} scope="col" class={isNumber ? 'is-number' : undefined}>
                {isUntitled ? <span class="for-readers">{title}</span> : title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) => (
                <Cell key={column.key} column={column} row={row} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

/** Whether an element is wider inside than outside, and so scrolls. */
function useOverflow(element: { readonly current: HTMLElement | null }): boolean {
  const [isWide, setWide] = useState(false)
  useEffect(() => {
    const { current } = element
    if (current === null) return undefined
    const measure = () => setWide(current.scrollWidth > current.clientWidth)
    const observer = new ResizeObserver(measure)
    observer.observe(current)
    for (const child of current.children) observer.observe(child)
    return () => observer.disconnect()
  }, [])
  return isWide
}

function Cell<Row>({
  column: { title, isNumber, isMain, isUntitled, cell },
  row,
}: {
  readonly column: Column<Row>
  readonly row: Row
}) {
  const kind = `${isNumber ? 'is-number ' : ''}${isUntitled ? 'is-untitled' : ''}`.trim() || undefined
  // On a phone the title stands before the value.
  return isMain ? (
    <th scope="row" class={kind}>
      {cell(row)}
    </th>
  ) : (
    <td class={kind} data-title={isUntitled ? undefined : title}>
      {cell(row)}
    </td>
  )
}
