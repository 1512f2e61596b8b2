/** The output of `settee vault add` and `settee setup`. */
import { encode, renderUnicodeCompact } from 'uqr'
import { shown } from '../core/errors.ts'
import { notesOf, type VaultReport, vaultAnswer } from '../vaults/vault-answer.ts'
import type { StepOutcome } from '../vaults/vault-control.ts'
import type { App } from '../vaults/vault-plan.ts'

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

const HOST_HINT = '--host https://notes.example.com:443'

/** @returns one line of JSON */
export function vaultJson(report: VaultReport): string {
  return `${JSON.stringify(vaultAnswer(report, HOST_HINT))}\n`
}

const DOCTOR = 'If syncing fails, pass the address to settee doctor --stdin to find out why.'

/** @param options.columns the width of the terminal; 0: print no QR code */
export function vaultText(report: VaultReport, { columns }: { readonly columns: number }): string {
  const { wish } = report
  const heading = `The vault ${shown(wish.vault)}, for ${APP_NAMES[wish.app]}:`
  const notes = notesOf(report, HOST_HINT).map((note) => `${note}\n`)
  return [heading, ...stepLines(report), '', ...secretLines(report, columns), DOCTOR, '']
    .join('\n')
    .concat(notes.length > 0 ? `\n${notes.join('')}` : '')
}

function stepLines({ wish, account, device, outcome }: VaultReport): string[] {
  const steps: [what: string, name: string, result: string][] = [
    ['database', wish.vault, OUTCOMES[outcome.database]],
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

function nextLines({ wish, address, setup }: VaultReport): string[] {
  switch (wish.app) {
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
