/** `settee vault add`: creates a database for a note app, and prints the address for the app. */
import { oneLine } from '../core/errors.ts'
import { makeVault } from '../vaults/vault-answer.ts'
import type { VaultControl } from '../vaults/vault-control.ts'
import { type PassphraseSource, planVault, vaultOf } from '../vaults/vault-plan.ts'
import { dataFolder, withControl } from './operate.ts'
import { type Prompts, readPassphrase, readPassword, terminalPrompts } from './prompts.ts'
import type { VaultCommand } from './vault-arguments.ts'
import { vaultJson, vaultText } from './vault-report.ts'

/** @returns the exit code: 1 after a failure, which one line on standard error explains */
export async function runVaultCommand(command: VaultCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const password = command.stdin ? await readPassword(process.stdin) : null
    const prompts = password === null ? await terminalPrompts() : null
    const operate = <T>(use: (controls: VaultControl) => Promise<T>) =>
      withControl(dataFolder(command.data, env), env, use)
    // Two separate calls: the folder is not locked while the user answers, so that a server can start on it.
    const state = await operate((controls) => controls.readVault(vaultOf(command)))
    const plan = await planVault(command, password, state, passphrasesOf(command, prompts, password))
    const report = await operate((controls) => makeVault(plan, controls))
    process.stdout.write(
      command.json ? vaultJson(report) : vaultText(report, { columns: columnsFor(command) }),
    )
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

/** @returns the columns for a QR code; 0: print no code */
export function columnsFor({ qr }: { readonly qr: boolean }): number {
  if (!qr && !process.stdout.isTTY) return 0
  return process.stdout.columns ?? Number.POSITIVE_INFINITY
}

/** The passphrase of an existing vault comes from a file or from the user. */
export function passphrasesOf(
  { passphraseFile }: Pick<VaultCommand, 'passphraseFile'>,
  prompts: Pick<Prompts, 'password'> | null,
  password: string | null,
): PassphraseSource {
  return {
    given: async () =>
      passphraseFile === undefined
        ? null
        : { passphrase: await readPassphrase(passphraseFile), isNew: false },
    ask: async () => {
      if (prompts !== null) {
        const question = 'Passphrase with which the other devices encrypt this vault'
        const check = (given: string) =>
          given.trim() === '' ? 'The passphrase must not be empty.' : undefined
        return { passphrase: await prompts.password(question, check), isNew: false }
      }
      // The address has the account's password, so it can be printed again at any time.
      if (password !== null) return null
      throw new Error(
        'The vault may hold encrypted notes already. Use --passphrase-file to give the passphrase of its other devices, ' +
          'or one of your own if there are none yet. Nothing has changed.',
      )
    },
  }
}
