/** The overview of an account that is no server admin: its databases, its quota, its devices. */
import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { server } from '../../api/session.ts'
import { AlarmsPart } from '../../parts/alarms-part.tsx'
import { LinkButton } from '../../parts/button.tsx'
import { Meter } from '../../parts/meter.tsx'
import { Badge, Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card, Page } from '../../parts/page.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { ago, bytes, number } from '../../strings/format.ts'

const { account: words } = en.overview
const EVERY_MS = 30_000
const MAX_SHOWN = 8

export function AccountOverview() {
  const databases = useLoad(
    (signal) => ask<DatabasePage>('_settee/databases', { query: { limit: String(MAX_SHOWN) }, signal }),
    'databases',
    { every: EVERY_MS },
  )
  const administered = (databases.data?.databases ?? [])
    .filter(({ role }) => role === 'admin')
    .map(({ name }) => name)
  return (
    <Page title={en.overview.title}>
      {administered.length > 0 && <AlarmsPart databases={administered} />}
      <div class="overview-top">
        <div class="stack">
          <Card
            title={words.databases}
            actions={
              <LinkButton isSmall href={hashOf(['databases'])}>
                {words.allDatabases}
              </LinkButton>
            }
          >
            {databases.failure !== null && (
              <ErrorNotice failure={databases.failure} onRetry={databases.reload} />
            )}
            {databases.data === undefined ? (
              databases.failure === null && <Skeleton lines={4} />
            ) : (
              <DatabaseLinks page={databases.data} />
            )}
          </Card>
          <DevicesPart />
        </div>
        {server.value?.isHosted === true && <QuotaPart />}
      </div>
    </Page>
  )
}

interface DatabasePage {
  readonly databases: readonly {
    readonly name: string
    readonly doc_count?: number
    readonly sizes?: { readonly file: number }
    readonly role?: 'admin' | 'member' | 'none'
  }[]
  readonly next: string | null
}

function DatabaseLinks({ page: { databases, next } }: { readonly page: DatabasePage }) {
  if (databases.length === 0 && next === null) {
    return (
      <Empty title={words.noDatabases} icon="databases">
        {words.noDatabasesHelp(server.value?.isHosted === true)}
      </Empty>
    )
  }
  return (
    <>
      <ul class="lines">
        {databases.map(({ name, doc_count = 0, sizes }) => (
          <li key={name}>
            <a href={hashOf(['databases', name])}>{name}</a>
            <span class="soft">
              {en.words.documents(doc_count)} · {bytes(sizes?.file ?? 0)}
            </span>
          </li>
        ))}
      </ul>
      {next !== null && <p class="fine">{words.moreDatabases}</p>}
    </>
  )
}

interface Account {
  readonly quota: Readonly<Record<string, number | 'infinity'>>
  readonly usage: Readonly<Record<string, number>>
}

/** The limits that an account can use up, in the order of their weight. */
const LIMITS = ['bytes', 'documents', 'databases', 'indexes', 'feeds'] as const

function QuotaPart() {
  const { data, failure, reload } = useLoad(
    (signal) => ask<Account>('_settee/account', { signal }),
    'account',
    {
      every: EVERY_MS,
    },
  )
  return (
    <Card title={words.quota}>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={5} />}
      {data !== undefined && (
        <ul class="limits">
          {LIMITS.map((limit) => (
            <Limit
              key={limit}
              name={limit}
              used={data.usage[limit] ?? 0}
              most={data.quota[limit] ?? 'infinity'}
            />
          ))}
        </ul>
      )}
    </Card>
  )
}

interface LimitProps {
  readonly name: (typeof LIMITS)[number]
  readonly used: number
  readonly most: number | 'infinity'
}

function Limit({ name, used, most }: LimitProps) {
  const text = name === 'bytes' ? bytes : number
  return (
    <li>
      <div class="task-head">
        <span>{words.limits[name]}</span>
        <span class="limit-values">
          {most === 'infinity' ? words.unlimited(text(used)) : words.usedOf(text(used), text(most))}
        </span>
      </div>
      {most !== 'infinity' && <Meter label={words.limits[name]} value={used} max={most} />}
    </li>
  )
}

interface TokenList {
  readonly tokens: readonly {
    readonly id: string
    readonly name: string
    readonly last_use: { readonly time: string; readonly client: string } | null
  }[]
}

function DevicesPart() {
  const { data, failure, reload } = useLoad(
    (signal) => ask<TokenList>('_settee/tokens', { signal }),
    'tokens',
    {
      every: EVERY_MS,
    },
  )
  return (
    <Card
      title={words.devices}
      actions={
        <LinkButton isSmall href={hashOf(['devices'])}>
          {words.allDevices}
        </LinkButton>
      }
    >
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data === undefined ? failure === null && <Skeleton lines={4} /> : <DeviceLines tokens={data.tokens} />}
    </Card>
  )
}

function DeviceLines({ tokens }: TokenList) {
  if (tokens.length === 0) {
    return (
      <Empty title={words.noDevices} icon="devices">
        {words.noDevicesHelp}
      </Empty>
    )
  }
  const newestFirst = tokens.toSorted((a, b) =>
    (b.last_use?.time ?? '').localeCompare(a.last_use?.time ?? ''),
  )
  return (
    <>
      <ul class="lines">
        {newestFirst.slice(0, MAX_SHOWN).map(({ id, name, last_use: use }) => (
          <li key={id}>
            <span>{name}</span>
            {use === null ? <Badge>{words.neverUsed}</Badge> : <span class="soft">{ago(use.time)}</span>}
          </li>
        ))}
      </ul>
      {tokens.length > MAX_SHOWN && <p class="fine">{words.moreDevices(tokens.length - MAX_SHOWN)}</p>}
    </>
  )
}
