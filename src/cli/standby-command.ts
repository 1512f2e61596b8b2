/** `settee follow` and `settee promote`. */
import { secretFromEnvironment } from '../config/sources.ts'
import { oneLine, shown } from '../core/errors.ts'
import type { StandbyReport } from '../standby/standby.ts'
import { dataFolder, withControl } from './operate.ts'
import { confirmOrStop, readPassword, terminalPrompts } from './prompts.ts'
import type { StandbyCommand } from './standby-arguments.ts'

type Follow = Extract<StandbyCommand, { readonly name: 'follow' }>
type Promote = Extract<StandbyCommand, { readonly name: 'promote' }>

/** @returns the exit code: 1 after a failure, and for a standby that has stopped */
export async function runStandbyCommand(command: StandbyCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    return command.name === 'follow' ? await follow(command, env) : await promote(command, env)
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

async function follow(command: Follow, env: NodeJS.ProcessEnv): Promise<number> {
  const { primary, again, json } = command
  const url = primary === null ? null : await withPassword(primary, command.stdin, env)
  const report = await withControl(dataFolder(command.data, env), env, (controls) =>
    url === null && !again ? controls.readStandby({}) : controls.follow({ url, again }),
  )
  print(json ? [JSON.stringify(report)] : linesOf(report))
  return report.state === 'halted' ? 1 : 0
}

/** @returns the address with the password @throws Error if it is not valid, or there is nobody to ask */
async function withPassword(primary: string, stdin: boolean, env: NodeJS.ProcessEnv): Promise<string> {
  if (!URL.canParse(primary)) throw new Error('The address of the primary is not valid.')
  const url = new URL(primary)
  if (url.username === '' || url.password !== '') return primary
  const given = stdin
    ? await readPassword(process.stdin)
    : await secretFromEnvironment(env, 'SETTEE_FIRST_PASSWORD')
  url.password = encodeURIComponent(given ?? (await askPassword(url)))
  return url.href
}

async function askPassword({ username, host }: URL): Promise<string> {
  const prompts = await terminalPrompts()
  if (prompts !== null) return prompts.password(`Password of ${username} at ${host}`)
  throw new Error('Give the password in the address, in SETTEE_FIRST_PASSWORD, or with --stdin.')
}

async function promote({ data, yes, json }: Promote, env: NodeJS.ProcessEnv): Promise<number> {
  const dataDir = dataFolder(data, env)
  const before = await withControl(dataDir, env, (controls) => controls.readStandby({}))
  if (before.state === 'none') throw new Error('This server is no standby.')
  if (!yes) await confirm(before)
  const outcome = await withControl(dataDir, env, (controls) => controls.promote({}))
  const { first: primary, lagSeconds } = outcome
  const lines = [
    `This server has taken the place of ${shown(primary)}, and accepts changes.`,
    lagSeconds === null
      ? 'The initial copy was not complete: some of the data may be missing.'
      : `It has everything that the primary had acknowledged more than ${seconds(lagSeconds)} ago.`,
    'Send the devices here, and do not let the former primary answer them again.',
  ]
  print(json ? [JSON.stringify(outcome)] : lines)
  return 0
}

async function confirm({ first: primary }: StandbyReport): Promise<void> {
  const prompts = await terminalPrompts()
  if (prompts === null) throw new Error('Give --yes to promote this standby without a question.')
  await confirmOrStop(prompts, `Take the place of ${shown(primary ?? '')}?`)
}

/** The state in words. */
export function linesOf(report: StandbyReport): readonly string[] {
  const { state, first: primary, lagSeconds, databases, waiting, refused, reason, failures } = report
  if (state === 'none') return ['This server is no standby.']
  const position =
    lagSeconds === null
      ? 'The initial copy is not complete.'
      : `It has everything that the primary had acknowledged more than ${seconds(lagSeconds)} ago.`
  return [
    state === 'following'
      ? `This server follows ${shown(primary ?? '')}.`
      : `This standby of ${shown(primary ?? '')} has stopped following.`,
    position,
    `It follows ${databases} databases, of which ${waiting} are being copied or wait for it.`,
    ...(reason === null ? [] : [`Reason: ${shown(reason)}`]),
    ...(refused === 0 ? [] : [`${refused} revisions could not be stored here; see the log.`]),
    ...failures.map((failure) => `${shown(failure.database)}: ${shown(failure.reason)}`),
    ...(state === 'halted'
      ? ['If the primary is right: settee follow --again. If this copy is right: settee promote.']
      : []),
  ]
}

function seconds(count: number): string {
  return count < 120 ? `${Math.ceil(count)} s` : `${Math.ceil(count / 60)} minutes`
}

function print(lines: readonly string[]): void {
  process.stdout.write(lines.map((line) => `${line}\n`).join(''))
}
