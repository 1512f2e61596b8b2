/** The databases of a move, page by page. */
import { useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { Badge, ErrorNotice, Skeleton, type Tone } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { en } from '../../strings/en.ts'
import { bytes, number } from '../../strings/format.ts'
import type { DatabasePage, Move, MovedDatabase } from './move-answers.ts'

const { move: texts } = en.replication

const PAGE = 50
/** In ms. */
const EVERY_MS = 3000

const TONES: Readonly<Record<MovedDatabase['state'], Tone>> = {
  waiting: 'plain',
  moving: 'info',
  moved: 'good',
  incomplete: 'bad',
  failed: 'bad',
  left: 'plain',
}

export function MoveDatabases({ move }: { readonly move: Move }) {
  const [skip, setSkip] = useState(0)
  const { data, failure, reload } = useLoad(
    (signal) =>
      ask<DatabasePage>(pathOf('_settee', 'moves', move.id, 'databases'), {
        query: { limit: String(PAGE), skip: String(skip) },
        signal,
      }),
    `${move.id} ${skip}`,
    move.ended_at === null ? { every: EVERY_MS } : {},
  )
  return (
    <Card title={texts.databasesTitle} isFlush>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data === undefined ? (
        <Skeleton lines={4} />
      ) : (
        <DataTable
          caption={texts.databasesTitle}
          columns={columnsOf(move.state)}
          rows={data.databases}
          keyOf={({ name }) => name}
        />
      )}
      {data !== undefined && data.total > PAGE && (
        <div class="row table-foot">
          <Button icon="back" disabled={skip === 0} onClick={() => setSkip(skip - PAGE)}>
            {en.queries.results.back}
          </Button>
          <span class="soft">{texts.range(skip + 1, Math.min(skip + PAGE, data.total), data.total)}</span>
          <Button disabled={skip + PAGE >= data.total} onClick={() => setSkip(skip + PAGE)}>
            {en.queries.results.next}
          </Button>
        </div>
      )}
    </Card>
  )
}

const columnsOf = (of: Move['state']): readonly Column<MovedDatabase>[] => [
  {
    key: 'name',
    title: texts.database,
    isMain: true,
    cell: ({ name, target }) => (target === undefined || target === name ? name : `${name} → ${target}`),
  },
  { key: 'state', title: texts.state, cell: (row) => <StateCell row={row} of={of} /> },
  {
    key: 'documents',
    title: texts.documentCount,
    isNumber: true,
    cell: ({ documents }) => (documents === undefined ? '–' : number(documents)),
  },
  {
    key: 'deleted',
    title: texts.deleted,
    isNumber: true,
    cell: ({ deleted }) => (deleted === undefined ? '–' : number(deleted)),
  },
  {
    key: 'bytes',
    title: texts.sizeThere,
    isNumber: true,
    cell: ({ bytes: size }) => (typeof size === 'number' ? bytes(size) : '–'),
  },
]

/** @param of the state of the whole move */
function StateCell({ row, of }: { readonly row: MovedDatabase; readonly of: Move['state'] }) {
  const { state, found, reason, notes = [], result } = row
  const hints = [
    ...(state === 'waiting' && found !== undefined && found !== 'new' ? [texts.found[found]] : []),
    ...(reason === undefined ? [] : [reason]),
    ...(result?.reason === undefined ? [] : [result.reason]),
    ...notes,
    ...(result?.notes ?? []),
    ...(state === 'moved' && result?.sampled !== undefined ? [texts.compared(result.sampled)] : []),
  ]
  return (
    <div class="job-state">
      <span>
        <Badge tone={TONES[state]}>{stateText(row, of)}</Badge>
      </span>
      {hints.map((hint) => (
        <span key={hint} class="fine">
          {hint}
        </span>
      ))}
    </div>
  )
}

function stateText({ state, found = 'new' }: MovedDatabase, of: Move['state']): string {
  if (state !== 'waiting') return texts.states[state]
  if (of === 'planned') return texts.comes[found]
  return of === 'moving' || of === 'planning' ? texts.states.waiting : texts.notReached
}
