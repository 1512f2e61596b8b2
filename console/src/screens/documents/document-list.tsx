/** The documents of a database, as a list of any length. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { askToDelete } from './delete-documents.ts'
import { type IdRow, type ListKind, type RowSource, readConflicts } from './id-rows.ts'
import { Cells } from './list-cells.tsx'
import { LivePanel } from './live-panel.tsx'
import { useRows } from './use-rows.ts'
import { VirtualList } from './virtual-list.tsx'

const { documents: texts } = en
const KINDS: readonly ListKind[] = ['all', 'conflicts', 'design', 'local']
/** Documents that can be selected at once, which one request deletes. */
const MAX_SELECTED = 1000
/** How long the user must pause before what they typed is searched, in ms. */
const PAUSE_MS = 250
const NARROW = matchMedia('(max-width: 640px)')

interface DocumentListProps {
  readonly database: string
  readonly query: Readonly<Record<string, string>>
}

/** The row where each list was left, by its address, until the page is closed. */
const leftAt = new Map<string, number>()
const MAX_LEFT = 100

export function DocumentList({ database, query }: DocumentListProps) {
  const kind = KINDS.find((each) => each === query.show) ?? 'all'
  const prefix = query.prefix ?? ''
  const key = hashOf(['databases', database, 'documents'], query)
  const [isLive, setLive] = useState(false)
  const [isStale, setStale] = useState(false)
  const { source, failure, isLoading, isCut, reload, searchOn } = useRows(database, kind, prefix)
  useEffect(() => setStale(false), [key])
  const refresh = () => {
    setStale(false)
    reload()
  }
  return (
    <div class={isLive ? 'documents has-live' : 'documents'}>
      <section class="documents-main" aria-label={en.documents.title}>
        <Toolbar
          database={database}
          kind={kind}
          prefix={prefix}
          isLive={isLive}
          onLive={() => setLive(!isLive)}
        />
        {failure !== null && <ErrorNotice failure={failure} title={texts.notRead} onRetry={refresh} />}
        {source === null ? (
          failure === null && <Skeleton lines={10} />
        ) : (
          <Rows
            key={key}
            address={key}
            database={database}
            kind={kind}
            prefix={prefix}
            source={source}
            isLoading={isLoading}
            isStale={isStale}
            onRefresh={refresh}
          />
        )}
        {isCut && <p class="fine">{texts.localsCut}</p>}
        {searchOn !== null && (
          <div class="row">
            <span class="fine">{texts.conflictsCut}</span>
            <Button isSmall onClick={searchOn}>
              {texts.searchOn}
            </Button>
          </div>
        )}
      </section>
      {isLive && (
        <LivePanel database={database} onClose={() => setLive(false)} onChanges={() => setStale(true)} />
      )}
    </div>
  )
}

interface ToolbarProps {
  readonly database: string
  readonly kind: ListKind
  readonly prefix: string
  readonly isLive: boolean
  readonly onLive: () => void
}

function Toolbar({ database, kind, prefix, isLive, onLive }: ToolbarProps) {
  const [text, setText] = useState(prefix)
  useEffect(() => setText(prefix), [prefix])
  const show = (next: ListKind, sought: string) =>
    go(
      hashOf(['databases', database, 'documents'], {
        show: next === 'all' ? undefined : next,
        prefix: sought === '' || next === 'conflicts' ? undefined : sought,
      }),
      { replaces: true },
    )
  useEffect(() => {
    if (text === prefix) return undefined
    const timer = setTimeout(() => show(kind, text), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <form
      class="documents-bar"
      onSubmit={(event) => {
        event.preventDefault()
        if (text !== '') go(hashOf(['databases', database, 'documents', text]))
      }}
    >
      <input
        type="search"
        class="is-code documents-search"
        aria-label={texts.searchLabel}
        placeholder={texts.searchPlaceholder}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        value={text}
        disabled={kind === 'conflicts'}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <select
        class="documents-kind"
        aria-label={texts.kindLabel}
        value={kind}
        onChange={(event) => show(event.currentTarget.value as ListKind, '')}
      >
        {KINDS.map((each) => (
          <option key={each} value={each} selected={each === kind}>
            {texts.kinds[each]}
          </option>
        ))}
      </select>
      {text !== '' && (
        <Button type="submit" icon="next">
          {texts.openId}
        </Button>
      )}
      <Button isPressed={isLive} icon={isLive ? 'pause' : 'play'} onClick={onLive}>
        {texts.live}
      </Button>
      <LinkButton
        kind="primary"
        icon="plus"
        href={hashOf(['databases', database, 'documents'], { new: '1' })}
      >
        {texts.newDocument}
      </LinkButton>
    </form>
  )
}

interface RowsProps {
  readonly address: string
  readonly database: string
  readonly kind: ListKind
  readonly prefix: string
  readonly source: RowSource
  readonly isLoading: boolean
  readonly isStale: boolean
  readonly onRefresh: () => void
}

function Rows({ address, database, kind, prefix, source, isLoading, isStale, onRefresh }: RowsProps) {
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
