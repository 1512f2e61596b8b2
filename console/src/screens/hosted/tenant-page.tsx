/** One account of hosted mode: what it uses, its databases, and everything that can be done with it. */
import { useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Badge, Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card, Facts, Page } from '../../parts/page.tsx'
import { PasswordDialog } from '../../parts/password-dialog.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { bytes, number } from '../../strings/format.ts'
import { OwnerDialog, Release } from './owner-dialog.tsx'
import { QuotaDialog } from './quota-dialog.tsx'
import { changeTenant, deleteTenant, QUOTAS, readTenant, type Tenant } from './tenant-calls.ts'
import { TenantState } from './tenant-list.tsx'
import { quotaText, UsageMeters } from './usage-meters.tsx'

const texts = en.hosted

export function TenantPageView({ name }: { readonly name: string }) {
  const [isLeaving, setLeaving] = useState(false)
  const { data, failure, reload } = useLoad((signal) => readTenant(name, signal), name, {
    // A deletion goes on without this page.
    every: isLeaving ? 1000 : 10_000,
  })
  const [dialog, setDialog] = useState<'quota' | 'owner' | null>(null)
  const isDeleting = data?.deleting === true
  if (isDeleting !== isLeaving) setLeaving(isDeleting)
  const back = { href: hashOf(['hosted']), label: texts.back }
  const isGone = failure?.status === 404
  return (
    <Page title={name} back={back} actions={data && !isGone && <Acts tenant={data} onChanged={reload} />}>
      {isGone ? (
        <Card>
          <Empty
            title={texts.gone(name)}
            icon="hosted"
            action={<LinkButton href={back.href}>{texts.back}</LinkButton>}
          />
        </Card>
      ) : (
        failure !== null && <ErrorNotice failure={failure} title={texts.notRead} onRetry={reload} />
      )}
      {data === undefined && failure === null && (
        <Card>
          <Skeleton lines={8} />
        </Card>
      )}
      {data !== undefined && !isGone && (
        <>
          <StateNotice tenant={data} />
          <div class="grid">
            <Card title={texts.usage}>
              <UsageMeters usage={data.usage} quota={data.quota} />
            </Card>
            <Card
              title={texts.limits}
              lead={texts.limitsOfAll}
              actions={
                <Button icon="edit" disabled={isDeleting} onClick={() => setDialog('quota')}>
                  {texts.editLimits}
                </Button>
              }
            >
              <Facts facts={limitsOf(data)} />
            </Card>
          </div>
          <Databases tenant={data} onGive={() => setDialog('owner')} onChanged={reload} />
          {dialog === 'quota' && (
            <QuotaDialog tenant={data} onClose={() => setDialog(null)} onChanged={reload} />
          )}
          {dialog === 'owner' && (
            <OwnerDialog account={name} onClose={() => setDialog(null)} onChanged={reload} />
          )}
        </>
      )}
    </Page>
  )
}

function limitsOf({ quota, overrides }: Tenant) {
  return QUOTAS.map((name) => ({
    term: texts.quotas[name],
    value: (
      <>
        {quotaText(name, quota[name])} {name in overrides && <Badge tone="info">{texts.ownLimit}</Badge>}
      </>
    ),
  }))
}

function StateNotice({ tenant }: { readonly tenant: Tenant }) {
  if (tenant.deleting) {
    return (
      <Notice tone="warn" title={texts.deletingTitle} isAnnounced>
        <p>{texts.deletingHelp(tenant.databases.length)}</p>
      </Notice>
    )
  }
  if (!tenant.suspended) return null
  return (
    <Notice tone="warn" title={texts.suspendedTitle(tenant.name)}>
      <p>{texts.suspendedHelp}</p>
    </Notice>
  )
}

interface ActsProps {
  readonly tenant: Tenant
  readonly onChanged: () => void
}

function Acts({ tenant, onChanged }: ActsProps) {
  const { name, suspended, deleting } = tenant
  const [isChanging, setChanging] = useState(false)
  return (
    <>
      <TenantState row={tenant} />
      <LinkButton icon="devices" href={hashOf(['devices'], { account: name })}>
        {texts.devices}
      </LinkButton>
      {isChanging && <PasswordDialog account={{ name, isAdmin: false }} onClose={() => setChanging(false)} />}
      {!deleting && (
        <>
          <Button onClick={() => setChanging(true)}>{texts.changePassword}</Button>
          <Button icon={suspended ? 'play' : 'pause'} onClick={() => askToSuspend(tenant, onChanged)}>
            {suspended ? texts.resume : texts.suspend}
          </Button>
          <Button kind="danger" icon="trash" onClick={() => askToDelete(tenant, onChanged)}>
            {en.common.delete}
          </Button>
        </>
      )}
    </>
  )
}

function askToSuspend({ name, suspended }: Tenant, onChanged: () => void): void {
  confirm({
    title: suspended ? texts.resumeTitle(name) : texts.suspendTitle(name),
    effects: suspended ? [texts.resumeEffect] : [texts.suspendEffect, texts.suspendKept],
    undo: suspended ? texts.resumeUndo : texts.suspendUndo,
    act: suspended ? texts.resume : texts.suspend,
    kind: suspended ? 'primary' : 'danger',
    run: async () => {
      await changeTenant(name, { suspended: !suspended })
      say(suspended ? texts.resumed(name) : texts.wasSuspended(name))
      onChanged()
    },
  })
}

function askToDelete({ name, databases }: Tenant, onChanged: () => void): void {
  confirm({
    title: texts.deleteTitle(name),
    effects: [
      texts.deleteDatabases(databases.map((each) => each.name)),
      texts.deleteAccess,
      texts.deleteBackups,
    ],
    undo: null,
    typed: name,
    act: texts.deleteAct,
    run: async () => {
      // It takes as long as the databases do; the page shows how far it is.
      const ending = deleteTenant(name)
      onChanged()
      const kept = await ending
      say(kept.length === 0 ? texts.deleted(name) : texts.deletedKept(name, kept.length))
      go(hashOf(['hosted']))
    },
  })
}

interface DatabasesProps extends ActsProps {
  readonly onGive: () => void
}

type DatabaseRow = Tenant['databases'][number]

function Databases({ tenant, onGive, onChanged }: DatabasesProps) {
  const { databases, deleting } = tenant
  const give = (
    <Button icon="plus" disabled={deleting === true} onClick={onGive}>
      {texts.give}
    </Button>
  )
  return (
    <Card title={texts.quotas.databases} actions={give} isFlush>
      {databases.length === 0 ? (
        <Empty title={texts.noDatabases} icon="databases">
          {texts.noDatabasesHelp}
        </Empty>
      ) : (
        <DataTable
          caption={texts.databasesCaption}
          columns={databaseColumns(tenant, onChanged)}
          rows={databases}
          keyOf={(row) => row.name}
        />
      )}
    </Card>
  )
}

function databaseColumns(tenant: Tenant, onChanged: () => void): readonly Column<DatabaseRow>[] {
  return [
    {
      key: 'name',
      title: texts.database,
      isMain: true,
      cell: ({ name }) => <a href={hashOf(['databases', name])}>{name}</a>,
    },
    { key: 'bytes', title: texts.quotas.bytes, isNumber: true, cell: (row) => bytes(row.bytes) },
    { key: 'documents', title: texts.quotas.documents, isNumber: true, cell: (row) => number(row.documents) },
    {
      key: 'owner',
      title: texts.release,
      isUntitled: true,
      cell: ({ name }) =>
        tenant.deleting ? null : <Release account={tenant.name} database={name} onChanged={onChanged} />,
    },
  ]
}
