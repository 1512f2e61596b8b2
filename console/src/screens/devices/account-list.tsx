/** The accounts of a server in single mode, for server admins. */
import { useState } from 'preact/hooks'
import {
  type Account,
  type AccountPage,
  createAccount,
  deleteAccount,
  listAccounts,
} from '../../api/accounts.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { user } from '../../api/session.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { NewAccountDialog } from '../../parts/new-account-dialog.tsx'
import { Badge, Empty, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { PasswordDialog } from '../../parts/password-dialog.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'

const texts = en.devices

export function AccountList() {
  const { data, failure, reload } = useLoad((signal) => listAccounts(undefined, signal), 'accounts')
  const [more, setMore] = useState<AccountPage | null>(null)
  const [moreFailure, setMoreFailure] = useState<Failure | null>(null)
  const [isAdding, setAdding] = useState(false)
  const [changing, setChanging] = useState<Account | null>(null)
  const accounts = [...(data?.accounts ?? []), ...(more?.accounts ?? [])]
  const next = more === null ? data?.next : more.next
  const changed = () => {
    setMore(null)
    reload()
  }
  const added = (name: string) => {
    say(texts.accountAdded(name))
    changed()
    setAdding(false)
  }
  const showMore = () => {
    setMoreFailure(null)
    listAccounts(next ?? undefined).then(
      (page) => setMore({ accounts: [...(more?.accounts ?? []), ...page.accounts], next: page.next }),
      (error: unknown) => setMoreFailure(asFailure(error)),
    )
  }
  const lastAdmin = accounts.filter(({ isAdmin }) => isAdmin).length === 1
  const add = (
    <Button icon="plus" onClick={() => setAdding(true)}>
      {texts.addAccount}
    </Button>
  )
  return (
    <Card title={texts.accounts} actions={add} isFlush>
      {failure !== null && <ErrorNotice failure={failure} title={texts.accountsNotListed} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={6} />}
      {accounts.length > 0 && (
        <DataTable
          caption={texts.accountsCaption}
          columns={columns({ lastAdmin, onPassword: setChanging, onChanged: changed })}
          rows={accounts}
          keyOf={({ name, isAdmin }) => `${isAdmin} ${name}`}
        />
      )}
      {data !== undefined && accounts.every(({ isAdmin }) => isAdmin) && (
        <Empty title={texts.noAccounts} icon="user">
          {texts.noAccountsHelp}
        </Empty>
      )}
      {moreFailure !== null && <ErrorNotice failure={moreFailure} />}
      {next != null && (
        <div class="table-end">
          <Button onClick={showMore}>{en.common.more}</Button>
        </div>
      )}
      {isAdding && (
        <NewAccountDialog
          title={texts.addAccount}
          lead={texts.addAccountLead}
          nameFault={nameFault}
          create={createAccount}
          onAdded={added}
          onClose={() => setAdding(false)}
        />
      )}
      {changing !== null && (
        <PasswordDialog account={changing} onClose={() => setChanging(null)} onChanged={changed} />
      )}
    </Card>
  )
}

interface RowActs {
  readonly lastAdmin: boolean
  readonly onPassword: (account: Account) => void
  readonly onChanged: () => void
}

function columns({ lastAdmin, onPassword, onChanged }: RowActs): readonly Column<Account>[] {
  return [
    { key: 'name', title: texts.account, isMain: true, cell: ({ name }) => name },
    { key: 'rights', title: texts.rights, cell: (account) => <Rights account={account} /> },
    {
      key: 'devices',
      title: texts.title,
      cell: ({ name }) => (
        <a href={hashOf(['devices'], { account: name })}>
          {texts.showDevices}
          <span class="for-readers"> {texts.ofAccount(name)}</span>
        </a>
      ),
    },
    {
      key: 'acts',
      title: texts.acts,
      isUntitled: true,
      cell: (account) => {
        const mayDelete = account.name !== user.value?.name && !(account.isAdmin && lastAdmin)
        return (
          <span class="row is-end">
            <Button isSmall onClick={() => onPassword(account)}>
              {account.hasPassword ? texts.changePassword : texts.setPassword}
              <span class="for-readers"> {texts.ofAccount(account.name)}</span>
            </Button>
            {mayDelete && (
              <Button isSmall kind="danger" onClick={() => askToDelete(account, onChanged)}>
                {en.common.delete}
                <span class="for-readers"> {account.name}</span>
              </Button>
            )}
          </span>
        )
      },
    },
  ]
}

function Rights({ account: { isAdmin, roles, hasPassword } }: { readonly account: Account }) {
  if (isAdmin) {
    return (
      <span class="row">
        <Badge tone="info">{texts.serverAdmin}</Badge> {texts.adminRights}
      </span>
    )
  }
  return (
    <span class="two-lines">
      <span>{texts.accountRights(roles)}</span>
      {!hasPassword && <span class="fine">{texts.noPassword}</span>}
    </span>
  )
}

function askToDelete(account: Account, onDeleted: () => void): void {
  const { name, isAdmin } = account
  confirm({
    title: texts.deleteTitle(name),
    effects: isAdmin
      ? [texts.deleteAdminEffect(name), texts.deleteKept]
      : [texts.deleteEffect(name), texts.deleteKept],
    undo: texts.deleteUndo(name),
    act: texts.deleteAct,
    run: async () => {
      await deleteAccount(account)
      say(texts.deleted(name))
      onDeleted()
    },
  })
}

function nameFault(name: string): string | null {
  return name.trim() === '' || name.includes(':') || name.startsWith('_') ? texts.badName : null
}
