/** A page of results, as a table or as the JSON that the server has sent. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Button } from '../../parts/button.tsx'
import { formatJson } from '../../parts/json-editor/exact-json.ts'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { CodeBlock } from './code-block.tsx'

interface ResultCardProps {
  readonly summary: ComponentChildren
  /** Stands before the results. */
  readonly notices?: ComponentChildren
  /** Stands in their place where there are none; null: there are some. */
  readonly empty: ComponentChildren | null
  readonly table: ComponentChildren
  readonly json: string
  /** From 1. */
  readonly number: number
  readonly hasMore: boolean
  readonly isBusy: boolean
  onBack(): void
  onNext(): void
}

export function ResultCard(props: ResultCardProps) {
  const { summary, notices, empty, table, json, number, hasMore, isBusy, onBack, onNext } = props
  const [isJson, setJson] = useState(false)
  const actions = (
    <>
      <Button isSmall isPressed={!isJson} onClick={() => setJson(false)}>
        {en.queries.results.table}
      </Button>
      <Button isSmall isPressed={isJson} onClick={() => setJson(true)}>
        {en.queries.results.json}
      </Button>
    </>
  )
  return (
    <Card
      title={en.queries.results.title}
      lead={<span role="status">{summary}</span>}
      {...(empty === null && { actions })}
    >
      {notices}
      {empty ??
        (isJson ? (
          <CodeBlock label={en.queries.results.json} text={formatJson(json)} />
        ) : (
          <div class="result-table">{table}</div>
        ))}
      {(number > 1 || hasMore) && (
        <div class="row">
          <Button icon="back" onClick={onBack} disabled={number === 1 || isBusy}>
            {en.queries.results.back}
          </Button>
          <span class="soft">{en.queries.results.page(number)}</span>
          <Button onClick={onNext} disabled={!hasMore} isBusy={isBusy}>
            {en.queries.results.next}
          </Button>
        </div>
      )}
    </Card>
  )
}
