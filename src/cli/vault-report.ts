/** The output of `settee vault add` and `settee setup`. */
import { encode, renderUnicodeCompact } from 'uqr'
import { type Address, parseAddress } from '../core/address.ts'
import { shown } from '../core/errors.ts'
import {
  isThisMachine,
  type StepOutcome,
  type VaultOutcome,
  type VaultState,
} from '../vaults/vault-control.ts'
import type { App, VaultCommand } from './vault-arguments.ts'

/** The current state of a vault, with its new secrets. */
export interface VaultReport {
  readonly command: Pick<VaultCommand, 'vault' | 'app' | 'host'>
  readonly account: string
  /** null: the address has the account's password. */
  readonly device: string | null
  readonly state: VaultState
  readonly outcome: VaultOutcome
  /** null: the device already has a token, which cannot be shown again. */
  readonly address: Address | null
  /** The address without credentials. */
  readonly url: string
  readonly setup: LiveSyncSetup | null
}

export interface LiveSyncSetup {
  readonly uri: string
  /** Decrypts the URI. */
  readonly passphrase: string
  /** Encrypts the notes; null: the user gave the passphrase. */
  readonly newEncryption: string | null
}

const OUTCOMES: Readonly<Record<StepOutcome, string>> = {
  made: 'created',
  there: 'exists already',
  changed: 'changed',
  differs: 'another one exists and was left unchanged',
  closed: 'changed: it was open to everyone, and no longer is',
}

const APP_NAMES: Readonly<Record<App, string>> = {
  inkdrop: 'Inkdrop or a similar app',
  livesync: 'Obsidian LiveSync',
  pouchdb: 'an app with PouchDB',
}

/** @returns one line of JSON */
export function vaultJson(report: VaultReport): string {
  const { command, account, device, outcome, address, url, setup } = report
  const { secret: _, faults: __, ...steps } = outcome
  const { vault, app } = command
  return `${JSON.stringify({
    vault,
    for: app,
    account,
    device,
    ...{ done: steps, url, address: address?.text ?? null },
    setup_uri: setup?.uri ?? null,
    setup_passphrase: setup?.passphrase ?? null,
    encryption_passphrase: setup?.newEncryption ?? null,
    notes: notesOf(report),
  })}\n`
}

const DOCTOR = 'If syncing fails, pass the address to settee doctor --stdin to find out why.'

/** @param options.columns the width of the terminal; 0: print no QR code */
export function vaultText(report: VaultReport, { columns }: { readonly columns: number }): string {
  const { command } = report
  const heading = `The vault ${shown(command.vault)}, for ${APP_NAMES[command.app]}:`
  const notes = notesOf(report).map((note) => `${note}\n`)
  return [heading, ...stepLines(report), '', ...secretLines(report, columns), DOCTOR, '']
    .join('\n')
    .concat(notes.length > 0 ? `\n${notes.join('')}` : '')
}

function stepLines({ command, account, device, outcome }: VaultReport): string[] {
  const steps: [what: string, name: string, result: string][] = [
    ['database', command.vault, OUTCOMES[outcome.database]],
    ['account', account, OUTCOMES[outcome.account]],
    ['access', account, OUTCOMES[outcome.security]],
  ]
  if (outcome.filter !== null) steps.push(['mobile filter', '_design/mobile', OUTCOMES[outcome.filter]])
  for (const key of outcome.settings) steps.push(['setting', key, 'changed'])
  if (outcome.token !== null) steps.push(['token for', device ?? '', OUTCOMES[outcome.token]])
  const widths = [0, 1].map((at) => Math.max(...steps.map((step) => shown(step[at] ?? '').length)))
  return steps.map(
    ([what, name, result]) => `  ${what.padEnd(widths[0]!)}  ${shown(name).padEnd(widths[1]!)}  ${result}`,
  )
}

function secretLines(report: VaultReport, columns: number): string[] {
  const { address, setup, device, url } = report
  if (address === null) {
    return [
      `Address: ${url}`,
      `The device ${shown(device ?? '')} has a token already, which is not shown again. Use --renew to replace it,`,
      'or --device NAME to create a token for another device.',
    ]
  }
  const once = device === null ? '' : ', shown only this once'
  const lines = [`Address (secret${once}):`, '', `  ${address.text}`, '']
  if (setup === null) return [...lines, ...qrLines(address.text, columns), ...nextLines(report)]
  const { uri, passphrase, newEncryption } = setup
  lines.push('Setup URI (encrypted):', '', uri, '', ...qrLines(uri, columns))
  lines.push(`Passphrase of the Setup URI:  ${passphrase}`)
  if (newEncryption !== null) {
    lines.push(`Passphrase of the vault:      ${newEncryption}`)
    lines.push(
      'Keep the passphrase of the vault: without it nobody can read the notes, and the server does not know it.',
    )
  }
  return [...lines, '', ...nextLines(report)]
}

function qrLines(text: string, columns: number): string[] {
  if (columns === 0) return []
  const code = qrCode(text, columns)
  if ('lines' in code) return [code.lines]
  if (code.needs === null) return []
  return [`(A QR code needs a window that is ${code.needs} columns wide.)`, '']
}

function nextLines({ command, address, setup }: VaultReport): string[] {
  switch (command.app) {
    case 'inkdrop':
      return [
        'In the app, open Preferences > Synchronization > Advanced, paste the address and choose Apply.',
      ]
    case 'livesync':
      if (setup === null)
        return [
          'There is no Setup URI, because settee does not know the passphrase of this vault. Give it with',
          '--passphrase-file, or type the parts of the address into the settings of LiveSync.',
        ]
      return ['In Obsidian, open Self-hosted LiveSync > Use a Setup URI, paste it and type its passphrase.']
    case 'pouchdb':
      return [`In the app: db.sync(${JSON.stringify(address?.text)}, { live: true, retry: true })`]
  }
}

function seemsUsedByAnotherApp(app: App, { documents, hasLiveSync }: VaultState): boolean {
  if (app === 'inkdrop') return hasLiveSync
  return app === 'livesync' && !hasLiveSync && (documents ?? 0) > 0
}

/** Notes about problems that will keep a device from syncing. */
function notesOf({ command, state, outcome, url }: VaultReport): string[] {
  const notes: string[] = []
  const place = parseAddress(url, { mobile: command.app !== 'pouchdb' })
  if (isThisMachine(new URL(url).hostname)) {
    notes.push(
      'This address works only on this machine. For other devices, give the address of the server as they see it: ' +
        '--host https://notes.example.com:443',
    )
  } else if (!place.ok) {
    for (const { reason, mend } of place.faults) notes.push(`${reason} ${mend}`)
  }
  if (new URL(url).hostname.startsWith('[')) {
    notes.push('PouchDB and apps built on it cannot use IPv6 addresses: use a host name.')
  }
  if (state.admins.length === 0 && !state.isHosted) {
    notes.push(
      'There is no server admin, so anyone who can reach the server may do anything. To create one: settee setup',
    )
  }
  if (seemsUsedByAnotherApp(command.app, state)) {
    notes.push(
      'Another app seems to use this database, and two apps in one database conflict. Choose another name.',
    )
  }
  if (outcome.filter === 'differs') {
    notes.push(
      'The filter sync of _design/mobile is not the one that leaves out pictures; it was left unchanged.',
    )
  }
  if (outcome.faults.length > 0) {
    notes.push(
      `LiveSync's server check will complain about ${outcome.faults.join(', ')}: ` +
        (state.isHosted
          ? 'in hosted mode a server admin has to set them (docs/livesync.md).'
          : 'run the same command again once there is a server admin.'),
    )
  }
  if (state.listening === null)
    notes.push(`No server is running on ${shown(state.folder)}. To start it: settee serve`)
  return notes
}

/** The width of the empty border, in modules. Cameras need it, especially on dark terminals; ISO 18004. */
const BORDER = 4
/** Bright white on black on any terminal, because not all cameras read an inverted code. */
const COLOURS = '\u001b[40;97m'
const RESET = '\u001b[0m'

/** The maximum length of the text, in bytes. */
const MAX_BYTES = 2331

/**
 * Draws a QR code with two modules in each character.
 * @param columns the width of the terminal
 * @returns the lines of the code; or the number of columns that it needs, null if the text is too long
 */
export function qrCode(
  text: string,
  columns: number,
): { readonly lines: string } | { readonly needs: number | null } {
  if (Buffer.byteLength(text) > MAX_BYTES) return { needs: null }
  const width = encode(text, { ecc: 'L', border: BORDER }).size
  if (width > columns) return { needs: width }
  const rows = renderUnicodeCompact(text, { ecc: 'L', border: BORDER }).split('\n')
  return { lines: rows.map((row) => `${COLOURS}${row}${RESET}\n`).join('') }
}
