import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { user } from '../../api/session.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Badge, Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { ago, exactTime } from '../../strings/format.ts'
import { clientName } from './client-names.ts'
import { type DevicePage, type DeviceToken, listDevices, revokeDevice } from './device-calls.ts'

const texts = en.devices
/** In ms; counting what devices lack asks their databases. */
const EVERY = 30_000

/** @param account whose devices are listed; undefined: of everybody, or the user's own */
export function DeviceList({ account }: { readonly account: string | undefined }) {
  const isAdmin = user.value?.isAdmin === true
  const own = user.value?.name ?? ''
  const whose = isAdmin && account === undefined ? 'all' : { account: account ?? own }
  const key = JSON.stringify(whose)
  const first = useLoad((signal) => listDevices(whose, undefined, signal), key, { every: EVERY })
  const [more, setMore] = useState<DevicePage | null>(null)
  const { data, failure, reload } = first
  const tokens = data === undefined ? [] : uniqueTokens([...data.tokens, ...(more?.tokens ?? [])])
  const next = more === null ? data?.next : more.next
  const changed = () => {
    setMore(null)
    reload()
  }
  return (
    <>
      {account !== undefined && isAdmin && (
        <p class="row">
          <strong>{texts.onlyOf(account)}</strong>
          <a href={hashOf(['devices'])}>{texts.showAll}</a>
        </p>
      )}
      {failure !== null && <ErrorNotice failure={failure} title={texts.notListed} onRetry={reload} />}
      {data === undefined && failure === null && (
        <Card>
          <Skeleton lines={6} />
        </Card>
      )}
      {data !== undefined && tokens.length === 0 && <NoDevices />}
      {tokens.length > 0 && (
        <Card isFlush>
          <DataTable
            caption={texts.caption}
            columns={columns(whose === 'all', changed)}
            rows={latestFirst(tokens)}
            keyOf={({ id }) => id}
          />
          {next != null && (
            <MoreDevices
              load={() => listDevices(whose, next)}
              onLoaded={(page) =>
                setMore({ tokens: [...(more?.tokens ?? []), ...page.tokens], next: page.next })
              }
            />
          )}
        </Card>
      )}
    </>
  )
}

function uniqueTokens(tokens: readonly DeviceToken[]): readonly DeviceToken[] {
  return [...new Map(tokens.map((token) => [token.id, token])).values()]
}

function latestFirst(tokens: readonly DeviceToken[]): readonly DeviceToken[] {
  const timeOf = ({ last_use, created }: DeviceToken) => last_use?.time ?? created
  return [...tokens].sort((a, b) => timeOf(b).localeCompare(timeOf(a)))
}

function NoDevices() {
  const action = (
    <LinkButton icon="plus" href={hashOf(['devices', 'add'])}>
      {texts.add}
    </LinkButton>
  )
  return (
    <Card>
      <Empty title={texts.none} icon="devices" action={action}>
        {texts.noneHelp}
      </Empty>
    </Card>
  )
}

function MoreDevices({
  load,
  onLoaded,
}: {
  readonly load: () => Promise<DevicePage>
  readonly onLoaded: (page: DevicePage) => void
}) {
  const [isBusy, setBusy] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  const run = () => {
    setBusy(true)
    setFailure(null)
    load()
      .then(onLoaded, (error: unknown) => setFailure(asFailure(error)))
      .finally(() => setBusy(false))
  }
  return (
    <div class="table-end">
      {failure !== null && <ErrorNotice failure={failure} />}
      <Button isBusy={isBusy} onClick={run}>
        {en.common.more}
      </Button>
    </div>
  )
}

function columns(hasAccount: boolean, onChanged: () => void): readonly Column<DeviceToken>[] {
  const account: Column<DeviceToken> = {
    key: 'account',
    title: texts.account,
    cell: ({ account: name }) => <a href={hashOf(['devices'], { account: name })}>{name}</a>,
  }
  return [
    { key: 'name', title: texts.device, isMain: true, cell: (token) => <DeviceName token={token} /> },
    ...(hasAccount ? [account] : []),
    { key: 'app', title: texts.app, cell: ({ last_use }) => <ClientText client={last_use?.client} /> },
    { key: 'seen', title: texts.lastSeen, cell: (token) => <LastSeen token={token} /> },
    { key: 'behind', title: texts.behind, cell: (token) => <Lag token={token} /> },
    {
      key: 'revoke',
      title: texts.revoke,
      isUntitled: true,
      cell: (token) => (
        <Button kind="danger" isSmall onClick={() => askToRevoke(token, onChanged)}>
          {texts.revoke}
          <span class="for-readers"> {token.name}</span>
        </Button>
      ),
    },
  ]
}

function DeviceName({ token }: { readonly token: DeviceToken }) {
  return (
    <span class="row">
      {token.name}
      {token.admin && <Badge tone="warn">{texts.adminToken}</Badge>}
    </span>
  )
}

function ClientText({ client }: { readonly client: string | undefined }) {
  if (client === undefined || client === '') return <span class="client soft">{texts.unknown}</span>
  const { app, system } = clientName(client)
  return (
    <span class="client" title={client}>
      {texts.client(app, system)}
    </span>
  )
}

function LastSeen({ token: { last_use, created } }: { readonly token: DeviceToken }) {
  if (last_use === null) {
    return (
      <span class="two-lines">
        <span>{texts.never}</span>
        <span class="fine" title={exactTime(created)}>
          {texts.added(ago(created))}
        </span>
      </span>
    )
  }
  return (
    <span class="two-lines">
      <span title={exactTime(last_use.time)}>{ago(last_use.time)}</span>
      <span class="fine">{texts.from(last_use.address)}</span>
    </span>
  )
}

/** How many databases are shown of one device. */
const SHOWN = 3

function Lag({ token: { positions } }: { readonly token: DeviceToken }) {
  if (positions.length === 0) return <span class="soft">{texts.notRead}</span>
  const worst = [...positions].sort((a, b) => (b.behind ?? -1) - (a.behind ?? -1))
  return (
    <ul class="lags">
      {worst.slice(0, SHOWN).map(({ database, behind, time }) => (
        <li key={database} title={texts.askedAt(exactTime(time))}>
          <span class="lag-name">{database}</span>{' '}
          <Badge tone={behind === null ? 'plain' : behind === 0 ? 'good' : 'warn'}>{texts.lag(behind)}</Badge>
        </li>
      ))}
      {worst.length > SHOWN && <li class="fine">{texts.moreDatabases(worst.length - SHOWN)}</li>}
    </ul>
  )
}

function askToRevoke({ id, name, account }: DeviceToken, onRevoked: () => void): void {
  confirm({
    title: texts.revokeTitle(name),
    effects: [texts.revokeEffect(account), texts.revokeKept],
    undo: texts.revokeUndo,
    act: texts.revoke,
    run: async () => {
      await revokeDevice(id)
      say(texts.revoked(name))
      onRevoked()
    },
  })
}
