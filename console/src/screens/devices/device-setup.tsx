/** What a new device needs, shown once: its address or Setup URI, a QR code, and the steps on the device. */
import { useEffect } from 'preact/hooks'
import { Button, LinkButton } from '../../parts/button.tsx'
import { CopyField } from '../../parts/copy-field.tsx'
import { Notice } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf } from '../../shell/hash.ts'
import { Lazy } from '../../shell/lazy.tsx'
import { en } from '../../strings/en.ts'
import type { Vault } from './device-calls.ts'

const texts = en.addDevice

const loadQrCode = () => import('./qr-code.tsx')

interface DeviceSetupProps {
  readonly vault: Vault
  readonly onAnother: () => void
}

export function DeviceSetup({ vault, onAnother }: DeviceSetupProps) {
  useEffect(() => {
    // The form may have been scrolled down.
    document.querySelector('h1')?.focus()
    document.querySelector('#content')?.scrollTo(0, 0)
  }, [])
  const scanned = vault.setup_uri ?? vault.address ?? ''
  return (
    <div class="stack">
      <Notice tone="warn" title={texts.onceTitle}>
        <p>{texts.once}</p>
      </Notice>
      {vault.notes.map((note) => (
        <Notice key={note} tone="info">
          <p>{note}</p>
        </Notice>
      ))}
      <div class="setup">
        <Card title={texts.stepsTitle}>
          <ol class="steps">
            {stepsOf(vault).map((step) => (
              <li key={step}>{step}</li>
            ))}
          </ol>
          <Secrets vault={vault} />
        </Card>
        <Card title={texts.qrTitle}>
          <Lazy load={loadQrCode} props={{ text: scanned, label: texts.qrLabel(vault.device) }} />
          <p class="hint">{vault.setup_uri === null ? texts.qrAddressHint : texts.qrUriHint}</p>
        </Card>
      </div>
      <Card title={texts.doneTitle}>
        <ul class="done">
          {doneOf(vault).map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      </Card>
      <div class="row">
        <LinkButton kind="primary" href={hashOf(['devices'])}>
          {texts.finish}
        </LinkButton>
        <Button onClick={onAnother}>{texts.another}</Button>
      </div>
    </div>
  )
}

function Secrets({
  vault: { setup_uri, setup_passphrase, encryption_passphrase, address },
}: Pick<DeviceSetupProps, 'vault'>) {
  return (
    <>
      {setup_uri !== null && <CopyField label={texts.setupUri} value={setup_uri} isLong />}
      {setup_passphrase !== null && <CopyField label={texts.setupPassphrase} value={setup_passphrase} />}
      {encryption_passphrase !== null && (
        <>
          <CopyField label={texts.encryptionPassphrase} value={encryption_passphrase} />
          <p class="hint">{texts.encryptionHelp}</p>
        </>
      )}
      {setup_uri === null && address !== null && (
        <CopyField label={texts.address} value={address} isSecret isLong />
      )}
    </>
  )
}

function stepsOf({ for: app, setup_uri }: Vault): readonly string[] {
  if (app === 'livesync' && setup_uri === null) return texts.steps.pouchdb
  return texts.steps[app]
}

function doneOf({ done, vault, account, device }: Vault): readonly string[] {
  const { database, account: made, security, filter, settings } = done
  return [
    texts.done.database(vault, database === 'made'),
    texts.done.account(account, made === 'made'),
    texts.done.access(
      account,
      vault,
      security === 'there' ? 'there' : security === 'closed' ? 'closed' : 'given',
    ),
    ...(filter === null ? [] : [texts.done.filter(filter)]),
    ...(settings.length === 0 ? [] : [texts.done.settings(settings.join(', '))]),
    texts.done.token(device, done.token === 'changed'),
  ]
}
