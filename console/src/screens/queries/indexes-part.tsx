/** The indexes of a database: of queries by fields, and of views. */
import { useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Meter } from '../../parts/meter.tsx'
import { Badge, Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { ago, bytes, number, percent } from '../../strings/format.ts'
import { fieldsOfIndex, nameOf } from './explain-words.ts'
import {
  type FieldIndex,
  type IndexPage,
  type IndexRow,
  readIndexPage,
  type ViewGroup,
} from './index-rows.ts'
import { NewIndexDialog } from './new-index.tsx'

const { indexes: texts } = en.queries

/** A build shows its progress so often, in ms. */
const BUILD_MS = 1500

interface IndexesPartProps {
  readonly database: string
  readonly mayChange: boolean
}

export function IndexesPart({ database, mayChange }: IndexesPartProps) {
  const [pages, setPages] = useState(1)
  const [isBuilding, setBuilding] = useState(false)
  const [isNew, setNew] = useState(false)
  const { data, failure, reload } = useLoad(
    async (signal) => {
      const all = await readPages(database, pages, signal)
      setBuilding(all.indexes.some(({ updating }) => updating))
      return all
    },
    `${database} ${pages}`,
    isBuilding ? { every: BUILD_MS } : {},
  )
  const add = mayChange && (
    <Button kind="primary" icon="plus" onClick={() => setNew(true)}>
      {texts.add}
    </Button>
  )
  const rows = data?.indexes ?? []
  const columns = columnsOf(database, mayChange, reload)
  return (
    <>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      <Card
        title={texts.title}
        lead={data === undefined ? texts.lead : `${texts.lead} ${texts.size(data.bytes)}`}
        {...(add && { actions: add })}
        isFlush
      >
        {data === undefined ? (
          failure === null && <Skeleton lines={5} />
        ) : rows.length === 0 ? (
          <Empty title={texts.none}>{mayChange ? texts.noneHelp : texts.notYours}</Empty>
        ) : (
          <DataTable
            caption={texts.title}
            columns={columns}
            rows={rows}
            keyOf={(row) => `${row.ddoc} ${row.type === 'json' ? row.name : ''}`}
          />
        )}
      </Card>
      {!mayChange && rows.length > 0 && <p class="fine">{texts.notYours}</p>}
      {data !== undefined && data.next !== null && (
        <div class="row">
          <Button onClick={() => setPages(pages + 1)}>{en.common.more}</Button>
        </div>
      )}
      {isNew && (
        <NewIndexDialog
          database={database}
          onClose={() => setNew(false)}
          onMade={(result) => {
            setNew(false)
            say(result === 'exists' ? texts.exists : texts.made)
            reload()
          }}
        />
      )}
    </>
  )
}

/** @param most pages; 20 of them have 1,000 design documents */
async function readPages(database: string, most: number, signal: AbortSignal): Promise<IndexPage> {
  let page = await readIndexPage(database, '', signal)
  const indexes = [...page.indexes]
  for (let read = 1; read < most && page.next !== null; read++) {
    page = await readIndexPage(database, page.next, signal)
    indexes.push(...page.indexes)
  }
  return { ...page, indexes }
}

function columnsOf(database: string, mayChange: boolean, reload: () => void): Column<IndexRow>[] {
  const name: Column<IndexRow> = {
    key: 'name',
    title: texts.name,
    isMain: true,
    cell: (row) =>
      row.type === 'json' ? <FieldsCell index={row} /> : <ViewsCell database={database} group={row} />,
  }
  return [
    name,
    { key: 'state', title: texts.state, cell: (row) => <StateCell row={row} /> },
    { key: 'rows', title: texts.rows, isNumber: true, cell: (row) => number(row.rows) },
    { key: 'bytes', title: texts.bytes, isNumber: true, cell: (row) => bytes(row.bytes) },
    {
      key: 'use',
      title: texts.use,
      cell: ({ last_use: use }) =>
        use === null ? (
          <span class="soft" title={texts.useUnknown}>
            –
          </span>
        ) : (
          ago(use)
        ),
    },
    ...(mayChange
      ? [
          {
            key: 'act',
            title: texts.acts,
            isUntitled: true,
            cell: (row: IndexRow) =>
              row.type === 'json' && (
                <Button
                  isSmall
                  kind="quiet"
                  icon="trash"
                  label={texts.delete(nameOf(row))}
                  onClick={() => askToDelete(database, row, reload)}
                />
              ),
          },
        ]
      : []),
  ]
}

function FieldsCell({ index }: { readonly index: FieldIndex }) {
  const { def, name, ddoc, partitioned } = index
  return (
    <div class="index-name">
      <span>{fieldsOfIndex(index).join(', ')}</span>
      <span class="fine">
        {nameOf({ name, ddoc })}
        {partitioned && ` · ${texts.partitioned}`}
        {def.partial_filter_selector !== undefined && ` · ${texts.partial}`}
      </span>
    </div>
  )
}

/** Views of a group that are named in its row. */
const MAX_NAMED = 12

function ViewsCell({ database, group }: { readonly database: string; readonly group: ViewGroup }) {
  const { ddoc, views, views_total, partitioned, runs } = group
  const href = (view: string) => hashOf(['databases', database, 'queries', 'view'], { ddoc, view })
  const left = views_total - Math.min(views.length, MAX_NAMED)
  return (
    <div class="index-name">
      <a href={hashOf(['databases', database, 'documents', ddoc])}>{ddoc}</a>
      <span class="fine">
        {texts.views}{' '}
        {views.slice(0, MAX_NAMED).map(({ name }, at) => (
          <span key={name}>
            {at > 0 && ', '}
            {runs ? <a href={href(name)}>{name}</a> : name}
          </span>
        ))}
        {left > 0 && ` ${texts.andMore(left)}`}
        {partitioned && ` · ${texts.partitioned}`}
      </span>
    </div>
  )
}

function StateCell({ row }: { readonly row: IndexRow }) {
  if (row.type === 'view' && !row.runs) return <Badge tone="warn">{texts.doesNotRun}</Badge>
  if (row.updating) {
    const { done = 0, total = 0 } = row.progress ?? {}
    const share = total === 0 ? 0 : done / total
    return (
      <div class="index-progress">
        <span class="fine">{row.progress === null ? texts.begins : texts.builds(percent(share))}</span>
        <Meter label={texts.progress} value={done} max={Math.max(total, 1)} warnAt={2} />
      </div>
    )
  }
  if (!row.built) return <Badge>{texts.unbuilt}</Badge>
  return row.pending === 0 ? (
    <Badge tone="good">{texts.current}</Badge>
  ) : (
    <Badge tone="info">{texts.behind(row.pending)}</Badge>
  )
}

function askToDelete(database: string, { ddoc, name, def }: FieldIndex, reload: () => void): void {
  confirm({
    title: texts.deleteTitle(nameOf({ name, ddoc })),
    effects: [texts.deleteEffect(fieldsOfIndex({ def }).join(', '))],
    undo: texts.deleteUndo,
    act: texts.deleteAct,
    run: async () => {
      await ask(pathOf(database, '_index', ddoc, 'json', name), { method: 'DELETE' })
      say(texts.deleted)
      reload()
    },
  })
}
