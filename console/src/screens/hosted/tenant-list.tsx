import { useEffect, useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { TextField } from '../../parts/field.tsx'
import { NewAccountDialog } from '../../parts/new-account-dialog.tsx'
import { Badge, Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card, Page } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { number } from '../../strings/format.ts'
import { createTenant, listTenants, type TenantPage, type TenantRow } from './tenant-calls.ts'
import { UsageMeter } from './usage-meters.tsx'

const texts = en.hosted
/** After the last key, before the search begins; in ms. */
const SEARCH_MS = 250

/** @param prefix with which the names begin */
export function TenantList({ prefix }: { readonly prefix: string }) {
  const [text, setText] = useState(prefix)
  const [isAdding, setAdding] = useState(false)
  useEffect(() => {
    if (text === prefix) return
    const query = { prefix: text === '' ? undefined : text }
    const timer = setTimeout(() => go(hashOf(['hosted'], query), { replaces: true }), SEARCH_MS)
    return () => clearTimeout(timer)
  }, [text, prefix])
  const add = (
    <Button kind="primary" icon="plus" onClick={() => setAdding(true)}>
      {texts.add}
    </Button>
  )
  return (
    <Page title={texts.title} lead={texts.lead} actions={add}>
      <div class="search-field">
        <TextField label={texts.search} type="search" value={text} onChange={setText} isCode />
      </div>
      <Rows key={prefix} prefix={prefix} onAdd={() => setAdding(true)} />
      {isAdding && (
        <NewAccountDialog
          title={texts.add}
          lead={texts.addLead}
          nameFault={nameFault}
          create={createTenant}
          onAdded={showAdded}
          onClose={() => setAdding(false)}
        />
      )}
    </Page>
  )
}

function Rows({ prefix, onAdd }: { readonly prefix: string; readonly onAdd: () => void }) {
  const { data, failure, reload } = useLoad(
    (signal) => listTenants(prefix, undefined, signal),
    `tenants ${prefix}`,
    { every: 30_000 },
  )
  const [more, setMore] = useState<TenantPage | null>(null)
  const [moreFailure, setMoreFailure] = useState<Failure | null>(null)
  const rows = [
    ...new Map([...(data?.accounts ?? []), ...(more?.accounts ?? [])].map((row) => [row.name, row])).values(),
  ]
  const next = more === null ? data?.next : more.next
  const showMore = () => {
    setMoreFailure(null)
    listTenants(prefix, next ?? undefined).then(
      (page) => setMore({ accounts: [...(more?.accounts ?? []), ...page.accounts], next: page.next }),
      (error: unknown) => setMoreFailure(asFailure(error)),
    )
  }
  return (
    <>
      {failure !== null && <ErrorNotice failure={failure} title={texts.notListed} onRetry={reload} />}
      {data === undefined && failure === null && (
        <Card>
          <Skeleton lines={6} />
        </Card>
      )}
      {data !== undefined && rows.length === 0 && (
        <Card>
          {prefix === '' ? (
            <Empty
              title={texts.none}
              icon="hosted"
              action={
                <Button icon="plus" onClick={onAdd}>
                  {texts.add}
                </Button>
              }
            >
              {texts.noneHelp}
            </Empty>
          ) : (
            <Empty title={texts.noMatch(prefix)} icon="search">
              {texts.noMatchHelp}
            </Empty>
          )}
        </Card>
      )}
      {rows.length > 0 && (
        <Card isFlush>
          <DataTable caption={texts.caption} columns={COLUMNS} rows={rows} keyOf={({ name }) => name} />
          {moreFailure !== null && <ErrorNotice failure={moreFailure} />}
          {next != null && (
            <div class="table-end">
              <Button onClick={showMore}>{en.common.more}</Button>
            </div>
          )}
        </Card>
      )}
    </>
  )
}

export function TenantState({ row: { suspended, deleting } }: { readonly row: TenantRow }) {
  if (deleting) return <Badge tone="bad">{texts.deleting}</Badge>
  return suspended ? <Badge tone="warn">{texts.suspended}</Badge> : <Badge tone="good">{texts.active}</Badge>
}

const COLUMNS: readonly Column<TenantRow>[] = [
  {
    key: 'name',
    title: texts.account,
    isMain: true,
    cell: ({ name }) => <a href={hashOf(['hosted', name])}>{name}</a>,
  },
  { key: 'state', title: texts.state, cell: (row) => <TenantState row={row} /> },
  {
    key: 'bytes',
    title: texts.quotas.bytes,
    cell: ({ usage, quota }) => <UsageMeter name="bytes" used={usage.bytes} limit={quota.bytes} />,
  },
  {
    key: 'documents',
    title: texts.quotas.documents,
    isNumber: true,
    cell: ({ usage }) => number(usage.documents),
  },
  {
    key: 'databases',
    title: texts.quotas.databases,
    isNumber: true,
    cell: ({ usage }) => number(usage.databases),
  },
]

function nameFault(name: string): string | null {
  return name.trim() === '' || name.includes(':') ? texts.badName : null
}

function showAdded(name: string): void {
  say(texts.added(name))
  go(hashOf(['hosted', name]))
}
