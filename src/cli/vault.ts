/** `settee vault add`: a database for a note app, and the address that the app takes. */
import { type Address, formatAddress, parseAddress } from '../core/address.ts'
import type { Controls } from '../maintenance/controls.ts'
import type { VaultOrder, VaultState } from '../maintenance/vaults.ts'
import { type Asker, terminalAsker } from './asker.ts'
import { dataFolder } from './data-folder.ts'
import { oneLine } from './one-line.ts'
import { withControls } from './operate.ts'
import { newPassphrase, readPassphrase } from './passphrase.ts'
import { readPassword } from './password.ts'
import { liveSyncSettings, setupUri } from './setup-uri.ts'
import type { VaultCommand } from './vault-arguments.ts'
import { type LiveSyncSetup, type VaultReport, vaultJson, vaultText } from './vault-report.ts'

/** @returns the exit code: 1 when it failed, which one line on the standard error explains */
export async function runVaultCommand(command: VaultCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const password = command.stdin ? await readPassword(process.stdin) : null
    const asker = password === null ? await terminalAsker() : null
    const report = await withControls(dataFolder(command.data, env), env, (controls) =>
      addVault(command, password, controls, asker),
    )
    const isShown = command.qr || process.stdout.isTTY === true
    const columns = isShown ? (process.stdout.columns ?? Number.POSITIVE_INFINITY) : 0
    process.stdout.write(command.json ? vaultJson(report) : vaultText(report, { columns }))
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

/**
 * Makes what is missing of a vault.
 * @param password the account's, which takes the place of a token; null: the device gets a token
 * @param asker null: nobody can be asked
 * @throws Error with one clear line; as `VaultControls.addVault`
 */
export async function addVault(
  command: VaultCommand,
  password: string | null,
  controls: Controls,
  asker: Asker | null,
): Promise<VaultReport> {
  const { vault: database, app, host, renew, mobileFilter } = command
  const account = command.account ?? database
  const device = password === null ? (command.device ?? app) : null
  const state = await controls.readVault({ database, account })
  const place = placeOf(host ?? state.url, database)
  const isToldNothing = device !== null && state.devices.includes(device) && !renew
  const encryption =
    app === 'livesync' && !isToldNothing ? await encryptionOf(command, state, asker, device === null) : null
  const order: VaultOrder = {
    database,
    account,
    device,
    password,
    renew,
    mobileFilter,
    liveSync: app === 'livesync',
  }
  const outcome = await controls.addVault(order)
  const secret = password ?? outcome.secret
  const address = secret === null ? null : withCredentials(place, account, secret)
  const setup = address === null || encryption === null ? null : await setupOf(address, encryption)
  return { command, account, device, state, outcome, address, url: place.url, setup }
}

/** @throws Error for a place that is none */
function placeOf(base: string, database: string): Address {
  // Where it listens on all networks, this machine's own is one.
  const reachable = base.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')
  const result = parseAddress(`${reachable.replace(/\/$/, '')}/${encodeURIComponent(database)}`)
  if (result.ok) return result.address
  throw new Error(result.faults.map(({ reason, mend }) => `${reason} ${mend}`).join(' '))
}

function withCredentials(place: Address, username: string, password: string): Address {
  const result = parseAddress(formatAddress({ ...place, username, password }))
  if (result.ok) return result.address
  throw new Error(result.faults.map(({ reason, mend }) => `${reason} ${mend}`).join(' '))
}

interface Encryption {
  readonly passphrase: string
  readonly isNew: boolean
}

/**
 * The passphrase that encrypts the notes. It is made for a vault that nobody can have put notes into; any other has one
 * already, which the server does not know.
 * @param isPassword the address is made of a password, and can be had again at any time
 * @returns null: it is not known
 * @throws Error when it is needed and nobody can be asked
 */
async function encryptionOf(
  { passphraseFile }: VaultCommand,
  { documents, hasAccount, devices }: VaultState,
  asker: Asker | null,
  isPassword: boolean,
): Promise<Encryption | null> {
  if (passphraseFile !== undefined) return { passphrase: await readPassphrase(passphraseFile), isNew: false }
  if (!documents && !hasAccount && devices.length === 0) return { passphrase: newPassphrase(), isNew: true }
  if (asker !== null) {
    const question = 'The passphrase by which the other devices encrypt this vault'
    const check = (given: string) => (given.trim() === '' ? 'It must not be empty.' : undefined)
    return { passphrase: await asker.password(question, check), isNew: false }
  }
  if (isPassword) return null
  throw new Error(
    'The vault is there already, and its notes are encrypted: give the passphrase that its other devices have by ' +
      '--passphrase-file. Nothing has changed.',
  )
}

async function setupOf(address: Address, { passphrase, isNew }: Encryption): Promise<LiveSyncSetup> {
  const opening = newPassphrase()
  const uri = await setupUri(liveSyncSettings(address, passphrase), opening)
  return { uri, passphrase: opening, newEncryption: isNew ? passphrase : null }
}
