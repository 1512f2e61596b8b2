/** `#/devices` lists devices, `#/devices/add` adds one, `#/devices/accounts` has the accounts. */
import { server, user } from '../../api/session.ts'
import { LinkButton } from '../../parts/button.tsx'
import { Page, Tabs } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { AccountList } from './account-list.tsx'
import { AddDevice } from './add-device.tsx'
import { DeviceList } from './device-list.tsx'
import './devices.css'

const texts = en.devices

export default function DevicesScreen({ path: [part], query }: Route) {
  if (part === 'add') return <AddDevice key={JSON.stringify(query)} query={query} />
  // In hosted mode accounts have a screen of their own.
  const hasAccounts = user.value?.isAdmin === true && server.value?.isHosted !== true
  const isAccounts = hasAccounts && part === 'accounts'
  const actions = (
    <LinkButton kind="primary" icon="plus" href={hashOf(['devices', 'add'], { account: query.account })}>
      {texts.add}
    </LinkButton>
  )
  const tabs = hasAccounts && (
    <Tabs
      label={texts.parts}
      tabs={[
        { href: hashOf(['devices']), text: texts.title, isOn: !isAccounts },
        { href: hashOf(['devices', 'accounts']), text: texts.accounts, isOn: isAccounts },
      ]}
    />
  )
  return (
    <Page
      title={texts.title}
      lead={isAccounts ? texts.accountsLead : texts.lead}
      actions={actions}
      tabs={tabs}
    >
      {isAccounts ? <AccountList /> : <DeviceList key={query.account} account={query.account} />}
    </Page>
  )
}
