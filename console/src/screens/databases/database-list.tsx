/** The list of databases: a page at a time, with a search by the beginning of the name. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { server, user } from '../../api/session.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { Field, SelectField, TextField } from '../../parts/field.tsx'
import { Badge, Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card, Page } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { bytes, number } from '../../strings/format.ts'
import { AccessBadge } from './access-badge.tsx'
import { CreateDatabase } from './create-database.tsx'
import type { DatabaseRow, ListedRow } from './database-answers.ts'
import { listDatabases } from './database-calls.ts'
import './databases.css'

const texts = en.databases.list

type Order = 'name' | 'documents' | 'size'

export function DatabaseList({ query }: Pick<Route, 'query'>) {
  const { prefix = '', after = '' } = query
  const [isCreating, setCreating] = useState(false)
  const [order, setOrder] = useState<Order>('name')
  const { data, failure, reload } = useLoad(
    (signal) => listDatabases({ prefix, after }, signal),
    JSON.stringify([prefix, after]),
  )
  const mayCreate = user.value?.isAdmin === true || server.value?.isHosted === true
  const create = mayCreate && (
    <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>
      {texts.create}
    </Button>
  )
  return (
    <Page
      title={en.databases.title}
      lead={mayCreate ? undefined : texts.ofAccount}
      actions={create || undefined}
    >
      <div class="toolbar">
        <PrefixField prefix={prefix} />
        <SelectField
          label={texts.order}
          value={order}
          options={[
            ['name', texts.byName],
            ['documents', texts.byDocuments],
            ['size', texts.bySize],
          ]}
          onChange={setOrder}
        />
      </div>
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data === undefined && failure === null && (
        <Card>
          <Skeleton lines={8} />
        </Card>
      )}
      {data?.databases.length === 0 && data.next === null && (
        <Card>
          <Nothing prefix={prefix} after={after} create={create} />
        </Card>
      )}
      {data !== undefined && data.databases.length > 0 && (
        <Card isFlush>
          <DataTable
            caption={en.databases.title}
            columns={columns()}
            rows={sorted(data.databases, order)}
            keyOf={({ name }) => name}
          />
        </Card>
      )}
      {data !== undefined && (after !== '' || data.next !== null) && (
        <Pager prefix={prefix} after={after} next={data.next} />
      )}
      {server.value?.isHosted === true && user.value?.isAdmin !== true && <OpenShared />}
      {isCreating && <CreateDatabase onClose={() => setCreating(false)} />}
    </Page>
  )
}

/** On a hosted server an account's list has only its own databases. */
function OpenShared() {
  const [name, setName] = useState('')
  return (
    <Card>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (name.trim() !== '') go(hashOf(['databases', name.trim()]))
        }}
      >
        <Field label={texts.shared} hint={texts.sharedHint}>
          {(control) => (
            <div class="joined narrow">
              <input
                {...control}
                class="is-code"
                autocomplete="off"
                autocapitalize="off"
                spellcheck={false}
                value={name}
                onInput={(event) => setName(event.currentTarget.value)}
              />
              <Button type="submit">{texts.openShared}</Button>
            </div>
          )}
        </Field>
      </form>
    </Card>
  )
}

/** Time without a key press after which the list is searched, in ms. */
const TYPING_MS = 300

function PrefixField({ prefix }: { readonly prefix: string }) {
  const [text, setText] = useState(prefix)
  const sent = useRef(prefix)
  useEffect(() => {
    if (prefix !== sent.current) setText(prefix)
    sent.current = prefix
  }, [prefix])
  useEffect(() => {
    if (text === sent.current) return
    const timer = setTimeout(() => {
      sent.current = text
      go(hashOf(['databases'], { prefix: text === '' ? undefined : text }), { replaces: true })
    }, TYPING_MS)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <TextField
      label={texts.search}
      type="search"
      isCode
      value={text}
      placeholder={texts.searchHint}
      onChange={setText}
    />
  )
}

function Nothing({
  prefix,
  after,
  create,
}: {
  readonly prefix: string
  readonly after: string
  readonly create: preact.ComponentChildren
}) {
  if (prefix !== '')
    return (
      <Empty icon="search" title={texts.noneWith(prefix)}>
        {texts.noneWithHelp}
      </Empty>
    )
  if (after !== '') return <Empty icon="databases" title={texts.noMore} />
  return (
    <Empty icon="databases" title={texts.none} action={create || undefined}>
      {create ? texts.noneHelp : texts.noneOfAccount}
    </Empty>
  )
}

function Pager({
  prefix,
  after,
  next,
}: {
  readonly prefix: string
  readonly after: string
  readonly next: string | null
}) {
  const at = (place: string) =>
    hashOf(['databases'], {
      prefix: prefix === '' ? undefined : prefix,
      after: place === '' ? undefined : place,
    })
  return (
    <nav class="row" aria-label={texts.pages}>
      {after !== '' && <LinkButton href={at('')}>{texts.firstPage}</LinkButton>}
      {next !== null && <LinkButton href={at(next)}>{texts.nextPage}</LinkButton>}
    </nav>
  )
}

function isRead(row: ListedRow): row is DatabaseRow {
  return !('error' in row)
}

function sorted(rows: readonly ListedRow[], order: Order): readonly ListedRow[] {
  if (order === 'name') return rows
  const value = (row: ListedRow) =>
    isRead(row) ? (order === 'size' ? row.sizes.file : row.doc_count) : Number.POSITIVE_INFINITY
  return [...rows].sort((a, b) => value(b) - value(a))
}

function columns(): readonly Column<ListedRow>[] {
  const isHosted = server.value?.isHosted === true
  const numbers = (read: (row: DatabaseRow) => string) => (row: ListedRow) => (isRead(row) ? read(row) : '–')
  const owner: Column<ListedRow> = {
    key: 'owner',
    title: texts.owner,
    cell: (row) => (isRead(row) ? (row.owner ?? texts.noOwner) : '–'),
  }
  return [
    {
      key: 'name',
      title: texts.name,
      isMain: true,
      cell: (row) => (
        <span class="row">
          <a class="name" href={hashOf(['databases', row.name])}>
            {row.name}
          </a>
          {row.name.startsWith('_') && <Badge>{texts.system}</Badge>}
          {!isRead(row) && <Badge tone="bad">{texts.unreadable}</Badge>}
        </span>
      ),
    },
    {
      key: 'access',
      title: texts.access,
      cell: (row) =>
        isRead(row) ? <AccessBadge access={row.access} /> : <span class="fine">{row.reason}</span>,
    },
    ...(isHosted && user.value?.isAdmin ? [owner] : []),
    {
      key: 'documents',
      title: texts.documents,
      isNumber: true,
      cell: numbers((row) => number(row.doc_count)),
    },
    {
      key: 'deleted',
      title: texts.deleted,
      isNumber: true,
      cell: numbers((row) => number(row.doc_del_count)),
    },
    { key: 'size', title: texts.size, isNumber: true, cell: numbers((row) => bytes(row.sizes.file)) },
  ]
}
