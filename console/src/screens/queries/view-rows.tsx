/** A page of a view's rows. */
import { Empty } from '../../parts/notice.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { parseExactly, shortText } from './exact-values.ts'
import { ResultCard } from './result-card.tsx'
import { VIEW_PAGE } from './view-query.ts'

interface ViewRow {
  readonly id?: string
  readonly key: unknown
  readonly value: unknown
  readonly doc?: unknown
  readonly error?: string
  readonly reason?: string
}

export interface ViewPage {
  readonly rows: readonly ViewRow[]
  readonly hasMore: boolean
  /** null for reduced rows. */
  readonly total: number | null
  /** The answer as the server has sent it. */
  readonly text: string
}

export function readRows(text: string): ViewPage {
  const { rows, total_rows } = parseExactly(text) as { rows: readonly ViewRow[]; total_rows?: number }
  return { rows: rows.slice(0, VIEW_PAGE), hasMore: rows.length > VIEW_PAGE, total: total_rows ?? null, text }
}

const MAX_CELL = 160

interface ViewRowsProps {
  readonly database: string
  readonly page: ViewPage
  readonly skip: number
  readonly isBusy: boolean
  onMove(skip: number): void
}

export function ViewRows({ database, page, skip, isBusy, onMove }: ViewRowsProps) {
  const { rows, hasMore, total } = page
  const numbered = rows.map((row, at) => ({ row, at }))
  const hasIds = rows.some(({ id }) => id !== undefined)
  const hasDocs = rows.some(({ doc }) => doc !== undefined)
  const text = (value: unknown) => <span>{shortText(value, MAX_CELL)}</span>
  const columns: Column<(typeof numbered)[number]>[] = [
    { key: 'key', title: en.queries.rows.key, isMain: true, cell: ({ row }) => text(keyOf(row)) },
    {
      key: 'value',
      title: en.queries.rows.value,
      cell: ({ row }) => text(row.error === undefined ? row.value : `${row.error}: ${row.reason ?? ''}`),
    },
    ...(hasIds
      ? [
          {
            key: 'id',
            title: en.queries.rows.document,
            cell: ({ row: { id } }: (typeof numbered)[number]) =>
              id !== undefined && <a href={hashOf(['databases', database, 'documents', id])}>{id}</a>,
          },
        ]
      : []),
    ...(hasDocs
      ? [
          {
            key: 'doc',
            title: en.queries.rows.content,
            cell: ({ row }: (typeof numbered)[number]) => text(row.doc),
          },
        ]
      : []),
  ]
  return (
    <ResultCard
      summary={en.queries.rows.summary(rows.length, total)}
      empty={rows.length === 0 ? <Empty icon="search" title={en.queries.rows.none} /> : null}
      table={
        <DataTable
          caption={en.queries.results.title}
          columns={columns}
          rows={numbered}
          keyOf={({ at }) => String(at)}
        />
      }
      json={page.text}
      number={skip / VIEW_PAGE + 1}
      hasMore={hasMore}
      isBusy={isBusy}
      onBack={() => onMove(skip - VIEW_PAGE)}
      onNext={() => onMove(skip + VIEW_PAGE)}
    />
  )
}

/** Without grouping, the whole reduction has no key. */
function keyOf({ key, error }: ViewRow): unknown {
  return key === null && error === undefined ? null : key
}
