/** Adds a device: the app, the database and a name; then what the device needs is shown once. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { serverAddress } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { server, user } from '../../api/session.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { CheckField, Field, PasswordField, TextField } from '../../parts/field.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { Card, Page } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { type App, addVault, databaseNames, type Vault, type VaultOrder } from './device-calls.ts'
import { DeviceSetup } from './device-setup.tsx'

const texts = en.addDevice
const APPS: readonly App[] = ['livesync', 'inkdrop', 'pouchdb']

/** @param query may name the database and the account */
export function AddDevice({ query }: Pick<Route, 'query'>) {
  const [vault, setVault] = useState<Vault | null>(null)
  // The browser may keep the page as it is, for its Back button: the secrets are not shown again.
  useEffect(() => {
    const forget = () => setVault(null)
    addEventListener('pagehide', forget)
    return () => removeEventListener('pagehide', forget)
  }, [])
  const back = { href: hashOf(['devices']), label: texts.back }
  if (vault !== null) {
    return (
      <Page title={texts.readyTitle(vault.device)} lead={texts.readyLead} back={back}>
        <DeviceSetup vault={vault} onAnother={() => setVault(null)} />
      </Page>
    )
  }
  return (
    <Page title={texts.title} lead={texts.lead} back={back}>
      <DeviceForm query={query} onMade={setVault} />
    </Page>
  )
}

interface Inputs {
  readonly app: App
  readonly vault: string
  readonly account: string
  readonly device: string
  readonly host: string
  readonly passphrase: string
  readonly mobileFilter: boolean
}

type Faults = Partial<Record<'vault' | 'device' | 'host' | 'passphrase', string>>

function DeviceForm({ query, onMade }: Pick<Route, 'query'> & { readonly onMade: (vault: Vault) => void }) {
  const isAdmin = user.value?.isAdmin === true
  const [inputs, setInputs] = useState<Inputs>(() => ({
    app: 'livesync',
    vault: query.database ?? '',
    account: query.account ?? '',
    device: '',
    host: ownHost(),
    passphrase: '',
    mobileFilter: false,
  }))
  const [faults, setFaults] = useState<Faults>({})
  /** How often the form was refused: each time, the focus goes to the first fault. */
  const [refusals, setRefusals] = useState(0)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [taken, setTaken] = useState<VaultOrder | null>(null)
  const [isBusy, setBusy] = useState(false)
  const form = useRef<HTMLFormElement>(null)
  const names = useLoad(databaseNames, 'databases').data ?? []
  const { app, vault } = inputs
  const isThere = names.includes(vault)
  const set = (change: Partial<Inputs>) => {
    setInputs((old) => ({ ...old, ...change }))
    // A field that is being corrected is checked again when the form is sent.
    const rest = Object.entries(faults).filter(([name]) => !(name in change))
    if (rest.length < Object.keys(faults).length) setFaults(Object.fromEntries(rest))
  }

  useEffect(() => {
    if (refusals > 0) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus()
  }, [refusals])

  const send = (order: VaultOrder) => {
    setBusy(true)
    setFailure(null)
    setTaken(null)
    return addVault(order)
      .then((made) => {
        if (made.address === null) setTaken(order)
        else onMade(made)
      })
      .finally(() => setBusy(false))
  }
  const refuse = (found: Faults) => {
    setFaults(found)
    setRefusals((count) => count + 1)
  }
  const submit = () => {
    if (isBusy) return
    const found = faultsOf(inputs)
    if (Object.keys(found).length > 0) {
      refuse(found)
      return
    }
    setFaults({})
    send(orderOf(inputs, isAdmin)).catch((error: unknown) => {
      const why = asFailure(error)
      // Only the server knows whether the vault may hold encrypted notes.
      if (!why.message.includes('`passphrase`')) setFailure(why)
      else refuse({ passphrase: texts.noPassphrase })
    })
  }
  return (
    <form
      ref={form}
      class="stack add-device"
      onSubmit={(event) => {
        event.preventDefault()
        submit()
      }}
    >
      <Card title={texts.appTitle}>
        <AppChoice app={app} onChange={(next) => set({ app: next })} />
      </Card>
      <Card title={texts.whereTitle}>
        <DatabaseField
          value={vault}
          names={names}
          isThere={isThere}
          error={faults.vault}
          onChange={(next) => set({ vault: next })}
        />
        <TextField
          label={texts.device}
          value={inputs.device}
          onChange={(next) => set({ device: next })}
          hint={texts.deviceHint}
          error={faults.device}
          placeholder={texts.devicePlaceholder}
        />
        {isAdmin && (
          <TextField
            label={texts.account}
            value={inputs.account}
            onChange={(next) => set({ account: next })}
            hint={texts.accountHint}
            placeholder={vault}
            isCode
          />
        )}
        <TextField
          label={texts.host}
          value={inputs.host}
          onChange={(next) => set({ host: next })}
          hint={texts.hostHint}
          error={faults.host}
          isCode
        />
        {app === 'livesync' && isThere && (
          <PasswordField
            label={texts.passphrase}
            value={inputs.passphrase}
            onChange={(next) => set({ passphrase: next })}
            hint={texts.passphraseHint}
            error={faults.passphrase}
          />
        )}
        {app === 'inkdrop' && server.value?.isHosted !== true && (
          <CheckField
            label={texts.mobileFilter}
            hint={texts.mobileFilterHint}
            isOn={inputs.mobileFilter}
            onChange={(next) => set({ mobileFilter: next })}
          />
        )}
        {app === 'livesync' && isAdmin && server.value?.isHosted !== true && (
          <p class="fine">{texts.liveSyncSettings}</p>
        )}
      </Card>
      {taken !== null && <TakenNotice order={taken} onRenew={send} />}
      {failure !== null && <ErrorNotice failure={failure} title={texts.notAdded} />}
      <div class="row">
        <Button kind="primary" type="submit" isBusy={isBusy}>
          {texts.submit}
        </Button>
        <LinkButton href={hashOf(['devices'])}>{en.common.cancel}</LinkButton>
      </div>
    </form>
  )
}

/** Radio buttons that look like cards. */
function AppChoice({ app, onChange }: { readonly app: App; readonly onChange: (app: App) => void }) {
  return (
    <fieldset class="choices">
      <legend class="for-readers">{texts.appTitle}</legend>
      {APPS.map((each) => (
        <label key={each} class="choice">
          <input type="radio" name="app" checked={each === app} onChange={() => onChange(each)} />
          <span>
            <strong>{texts.apps[each].name}</strong>
            <span class="hint">{texts.apps[each].hint}</span>
          </span>
        </label>
      ))}
    </fieldset>
  )
}

interface DatabaseFieldProps {
  readonly value: string
  readonly names: readonly string[]
  readonly isThere: boolean
  readonly error: string | undefined
  readonly onChange: (value: string) => void
}

/** An existing database, or the name of a new one. In single mode only a server admin makes databases. */
function DatabaseField({ value, names, isThere, error, onChange }: DatabaseFieldProps) {
  const mayCreate = user.value?.isAdmin === true || server.value?.isHosted === true
  const hint =
    value !== '' && names.length > 0
      ? isThere
        ? texts.vaultThere
        : texts.vaultNew(mayCreate)
      : texts.vaultHint(mayCreate)
  return (
    <Field label={texts.vault} hint={hint} error={error}>
      {(control) => (
        <>
          <input
            {...control}
            class="is-code"
            list={`${control.id}-names`}
            value={value}
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
          <datalist id={`${control.id}-names`}>
            {names.map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  )
}

/** The account has a device of this name, whose token cannot be shown again. */
function TakenNotice({
  order,
  onRenew,
}: {
  readonly order: VaultOrder
  readonly onRenew: (order: VaultOrder) => Promise<void>
}) {
  const ask = () =>
    confirm({
      title: texts.renewTitle(order.device),
      effects: [texts.renewEffect],
      undo: texts.renewUndo,
      act: texts.renew,
      run: () => onRenew({ ...order, renew: true }),
    })
  return (
    <Notice
      tone="warn"
      title={texts.taken(order.device)}
      isAnnounced
      actions={
        <Button isSmall onClick={ask}>
          {texts.renew}
        </Button>
      }
    >
      <p>{texts.takenHelp}</p>
    </Notice>
  )
}

function orderOf(
  { app, vault, account, device, host, passphrase, mobileFilter }: Inputs,
  isAdmin: boolean,
): VaultOrder {
  return {
    vault,
    for: app,
    account: isAdmin && account !== '' ? account : undefined,
    device: device.trim(),
    host,
    passphrase: app === 'livesync' && passphrase !== '' ? passphrase : undefined,
    mobile_filter: app === 'inkdrop' && mobileFilter,
    renew: false,
  }
}

const DATABASE_NAME = /^[a-z][a-z0-9_$()+/-]*$/

/** What can be seen without the server; it checks the rest. */
function faultsOf({ app, vault, device, host }: Inputs): Faults {
  return {
    ...(!DATABASE_NAME.test(vault) && { vault: texts.badVault }),
    ...(app === 'livesync' && vault.includes('/') && { vault: texts.slashVault }),
    ...(device.trim() === '' && { device: texts.noDevice }),
    ...(!/^https?:\/\/[^/]+:\d+\/?$/.test(host.trim()) && { host: texts.badHost }),
  }
}

/** Where this page reaches the server, with the port, which some apps need. */
function ownHost(): string {
  const { protocol, hostname, port } = new URL(serverAddress())
  return `${protocol}//${hostname}:${port || (protocol === 'https:' ? '443' : '80')}`
}
