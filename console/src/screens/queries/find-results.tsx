/** A page of documents that a query has found. */
import { membersOf } from '../../parts/json-editor/exact-json.ts'
import { Empty, Notice } from '../../parts/notice.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { columnsFor, fieldOf, parseExactly, shortText } from './exact-values.ts'
import { memberOf } from './find-body.ts'
import { IndexOffer } from './index-offer.tsx'
import { ResultCard } from './result-card.tsx'

type FoundDoc = Readonly<Record<string, unknown>>

export interface FindPage {
  readonly docs: readonly FoundDoc[]
  /** The documents as the server has sent them. */
  readonly text: string
  /** Of the next page; null if this is the last one. */
  readonly bookmark: string | null
  readonly warnings: readonly string[]
  readonly stats: FindStats | null
}

interface FindStats {
  readonly total_keys_examined: number
  readonly total_docs_examined: number
  readonly results_returned: number
  readonly execution_time_ms: number
}

/** @param size documents on a full page */
export function readPage(answer: string, size: number): FindPage {
  const { docs, bookmark, warning, execution_stats } = parseExactly(answer) as {
    docs: readonly FoundDoc[]
    bookmark: string
    warning?: string
    execution_stats?: FindStats
  }
  const found = membersOf(answer).find(({ name }) => name === 'docs')
  return {
    docs,
    text: found === undefined ? '[]' : answer.slice(found.valueFrom, found.to),
    bookmark: docs.length < size || bookmark === 'nil' ? null : bookmark,
    warnings: warning?.split('\n').filter((line) => line.trim() !== '') ?? [],
    stats: execution_stats ?? null,
  }
}

/** The server's warning that it reads every document. */
const NO_INDEX = /^No matching index found/i
/** The warning that this is slow, which goes without saying then. */
const MANY_READ = /documents examined is high/i
/** Characters of a cell. */
const MAX_CELL = 120
/** Characters that stay on one line, such as those of a date. */
const ONE_LINE = 24

interface FindResultsProps {
  readonly database: string
  readonly text: string
  readonly page: FindPage
  /** From 1. */
  readonly number: number
  readonly mayChange: boolean
  readonly isBusy: boolean
  /** Whether the text in the editor has changed since. */
  readonly isOld: boolean
  onRunAgain(): void
  onNext(): void
  onBack(): void
}

export function FindResults(props: FindResultsProps) {
  const { database, text, page, number, mayChange, isBusy, isOld, onNext, onBack } = props
  const { docs, warnings, stats } = page
  const isScan = warnings.some((line) => NO_INDEX.test(line))
  const others = warnings.filter((line) => !NO_INDEX.test(line) && !(isScan && MANY_READ.test(line)))
  const notices = (
    <>
      {isScan && (
        <IndexOffer database={database} text={text} mayChange={mayChange} onMade={props.onRunAgain} />
      )}
      {others.map((line) => (
        <Notice key={line} tone="info">
          {line}
        </Notice>
      ))}
    </>
  )
  const empty = (
    <Empty icon="search" title={number === 1 ? en.queries.results.none : en.queries.results.noMore}>
      {number === 1 ? en.queries.results.noneHelp : undefined}
    </Empty>
  )
  return (
    <ResultCard
      summary={
        <>
          {en.queries.results.summary(docs.length, number)}
          {stats !== null &&
            ` ${en.queries.results.stats(stats.execution_time_ms, stats.total_docs_examined, isScan ? 0 : stats.total_keys_examined)}`}
          {isOld && ` ${en.queries.results.isOld}`}
        </>
      }
      notices={notices}
      empty={docs.length === 0 ? empty : null}
      table={<ResultTable database={database} text={text} docs={docs} />}
      json={page.text}
      number={number}
      hasMore={page.bookmark !== null}
      isBusy={isBusy}
      onBack={onBack}
      onNext={onNext}
    />
  )
}

function ResultTable({
  database,
  text,
  docs,
}: {
  readonly database: string
  readonly text: string
  readonly docs: readonly FoundDoc[]
}) {
  const wanted = memberOf(text, 'fields')
  const fields = Array.isArray(wanted)
    ? wanted.filter((field): field is string => typeof field === 'string')
    : []
  const rows = docs.map((doc, at) => ({ doc, at }))
  const columns: Column<(typeof rows)[number]>[] = [
    {
      key: '_id',
      title: '_id',
      isMain: true,
      cell: ({ doc, at }) => {
        const { _id: id } = doc
        if (typeof id !== 'string') return <span class="soft">{en.queries.results.row(at + 1)}</span>
        return <a href={hashOf(['databases', database, 'documents', id])}>{id}</a>
      },
    },
    ...columnsFor(docs, fields).map((field) => ({
      key: field,
      title: field,
      cell: ({ doc }: (typeof rows)[number]) => {
        const value = fieldOf(doc, field)
        if (value === undefined) return <span class="soft">–</span>
        const shown = shortText(value, MAX_CELL)
        return <span class={shown.length <= ONE_LINE ? 'is-short' : undefined}>{shown}</span>
      },
    })),
  ]
  return (
    <DataTable
      caption={en.queries.results.title}
      columns={columns}
      rows={rows}
      keyOf={({ at }) => String(at)}
    />
  )
}
