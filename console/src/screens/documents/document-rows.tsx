/** The rows of a list of documents: which is active, which are selected, and what can be done with them. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { Empty } from '../../parts/notice.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { askToDelete } from './delete-documents.ts'
import { type IdRow, type ListKind, type RowSource, readConflicts } from './id-rows.ts'
import { Cells } from './list-cells.tsx'
import { VirtualList } from './virtual-list.tsx'

const { documents: texts } = en
/** Documents that can be selected at once, which one request deletes. */
const MAX_SELECTED = 1000
const NARROW = matchMedia('(max-width: 640px)')

/** The row where each list was left, by its address, until the page is closed. */
const leftAt = new Map<string, number>()
const MAX_LEFT = 100

interface DocumentRowsProps {
  readonly address: string
  readonly database: string
  readonly kind: ListKind
  readonly prefix: string
  readonly source: RowSource
  readonly isLoading: boolean
  readonly isStale: boolean
  readonly onRefresh: () => void
}

export function DocumentRows(props: DocumentRowsProps) {
  const { address, database, kind, prefix, source, isLoading, isStale, onRefresh } = props
  const [active, setActive] = useState(() =>
    Math.min(leftAt.get(address) ?? 0, Math.max(0, source.count - 1)),
  )
  const [selected, setSelected] = useState<ReadonlyMap<string, IdRow>>(new Map())
  const onView = useCallback((first: number, after: number) => source.want(first, after), [source])
  // Badges: the first conflicts, which the server finds by a short scan. The list does not depend on them.
  const known = useLoad<ReadonlyMap<string, IdRow>>(
    async (signal) =>
      kind === 'all'
        ? new Map((await readConflicts(database, null, signal)).rows.map((row) => [row.id, row]))
        : new Map(),
    JSON.stringify([database, kind, source.count]),
  )
  const rowHeight = useRowHeight()
  const anchor = useRef(active)
  useEffect(() => {
    leftAt.delete(address)
    leftAt.set(address, active)
    const [oldest] = leftAt.keys()
    if (leftAt.size > MAX_LEFT && oldest !== undefined) leftAt.delete(oldest)
  }, [address, active])
  useEffect(() => setActive((row) => Math.min(row, Math.max(0, source.count - 1))), [source.count])
  const toggle = (place: number, isRange = false) => {
    const rows = isRange ? loadedBetween(source, anchor.current, place) : loadedBetween(source, place, place)
    const isOn = !isRange && rows.every(({ id }) => selected.has(id))
    const next = new Map(selected)
    for (const row of rows) {
      if (isOn) next.delete(row.id)
      else if (next.size < MAX_SELECTED) next.set(row.id, row)
    }
    anchor.current = place
    setSelected(next)
  }
  const remove = () =>
    askToDelete(database, [...selected.values()], () => {
      setSelected(new Map())
      onRefresh()
    })
  const onKey = (event: KeyboardEvent) => {
    const row = source.row(active)
    if (event.key === 'Enter' && row !== undefined) go(hashOf(['databases', database, 'documents', row.id]))
    else if (event.key === ' ' && kind !== 'local') toggle(active, event.shiftKey)
    else if (event.key === 'Delete' && selected.size > 0) remove()
    else if (event.key === 'Escape' && selected.size > 0) setSelected(new Map())
    else return
    event.preventDefault()
  }
  if (source.count === 0 && !isLoading) return <NoRows database={database} kind={kind} prefix={prefix} />
  return (
    <div class="documents-rows">
      <div class="documents-state" role="status">
        {selected.size > 0 ? (
          <>
            <strong>{texts.selected(selected.size)}</strong>
            <Button isSmall kind="quiet" onClick={() => setSelected(new Map())}>
              {texts.selectNone}
            </Button>
            <Button isSmall kind="danger" icon="trash" onClick={remove}>
              {texts.deleteSelected}
            </Button>
          </>
        ) : (
          <>
            <span>
              {prefix === '' ? texts.countOf[kind](source.count) : texts.found(source.count, prefix)}
            </span>
            {isStale && (
              <Button isSmall kind="quiet" icon="reload" onClick={onRefresh}>
                {texts.refresh}
              </Button>
            )}
            {!isStale && (
              <span class="fine documents-keys">{kind === 'local' ? texts.keysOfLocals : texts.keys}</span>
            )}
          </>
        )}
      </div>
      <VirtualList
        label={texts.listLabel}
        rows={source.count}
        rowHeight={rowHeight}
        active={active}
        onActive={setActive}
        isSelected={(place) => selected.has(source.row(place)?.id ?? '')}
        onView={onView}
        onKey={onKey}
      >
        {(place) => (
          <Cells
            database={database}
            row={withConflicts(source.row(place), known.data)}
            place={place}
            isSelected={selected.has(source.row(place)?.id ?? '')}
            canSelect={kind !== 'local'}
            onSelect={(isRange) => {
              setActive(place)
              toggle(place, isRange)
            }}
          />
        )}
      </VirtualList>
    </div>
  )
}

function NoRows({
  database,
  kind,
  prefix,
}: {
  readonly database: string
  readonly kind: ListKind
  readonly prefix: string
}) {
  if (prefix !== '') {
    return (
      <Empty
        title={texts.noneFound}
        icon="search"
        action={
          <LinkButton href={hashOf(['databases', database, 'documents'], { new: '1', id: prefix })}>
            {texts.createWithId}
          </LinkButton>
        }
      >
        {texts.noneFoundHelp(prefix)}
      </Empty>
    )
  }
  return (
    <Empty title={texts.noneOf[kind].title} icon="file">
      {texts.noneOf[kind].help}
    </Empty>
  )
}

function withConflicts(
  row: IdRow | undefined,
  known: ReadonlyMap<string, IdRow> | undefined,
): IdRow | undefined {
  const conflicts = row && known?.get(row.id)?.conflicts
  return row === undefined || conflicts === undefined ? row : { ...row, conflicts }
}

/** Rows of both ends and between that have been loaded. */
function loadedBetween(source: RowSource, one: number, other: number): IdRow[] {
  const rows: IdRow[] = []
  const last = Math.max(one, other)
  for (let place = Math.min(one, other); place <= last && rows.length < MAX_SELECTED; place += 1) {
    const row = source.row(place)
    if (row !== undefined) rows.push(row)
  }
  return rows
}

/** In px; on narrow screens, the revision stands below the id. */
function useRowHeight(): number {
  const [isNarrow, setNarrow] = useState(NARROW.matches)
  useEffect(() => {
    const onChange = () => setNarrow(NARROW.matches)
    NARROW.addEventListener('change', onChange)
    return () => NARROW.removeEventListener('change', onChange)
  }, [])
  return isNarrow ? 60 : 40
}
