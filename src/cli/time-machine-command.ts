/** `settee history` and `settee rewind`: earlier versions of documents, for users who can open the data folder. */
import type { ControlCommands } from '../control/control-commands.ts'
import { oneLine, shown } from '../core/errors.ts'
import type { RewindCounts } from '../documents/time-machine/time-machine-calls.ts'
import type { RewindResult } from '../time-machine/time-machine-control.ts'
import { dataFolder, withControl } from './operate.ts'
import { progressBar } from './progress-bar.ts'
import { confirmOrStop, terminalPrompts } from './prompts.ts'
import { shown as inUnits, tableText } from './size-command.ts'
import type { TimeMachineCommand } from './time-machine-arguments.ts'

type Named<Name> = Extract<TimeMachineCommand, { readonly name: Name }>

/** @returns the exit code: 1 if it failed or documents were refused, which lines on standard error explain */
export async function runTimeMachineCommand(
  command: TimeMachineCommand,
  env: NodeJS.ProcessEnv,
): Promise<number> {
  try {
    return await withControl(dataFolder(command.data, env), env, (controls) =>
      command.name === 'history' ? history(command, controls) : rewind(command, controls),
    )
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

interface ShownVersion {
  readonly rev: string
  readonly deleted: boolean
  readonly stored_at: string | null
  readonly superseded_at: string | null
  readonly size: number
  readonly attachments: number
}

interface HistoryAnswer {
  readonly versions?: readonly ShownVersion[]
  readonly rows?: readonly {
    readonly id: string
    readonly at: string
    readonly deleted: boolean
    readonly overwritten: number
  }[]
  readonly bookmark: string | null
  readonly known_since: string | null
}

async function history(command: Named<'history'>, controls: ControlCommands): Promise<number> {
  const { database, id, limit, since, choice, json } = command
  if (id !== null && choice !== null) {
    const { text } = await controls.readVersion({ database, id, choice })
    printLine(text)
    return 0
  }
  const query = { database, limit, ...(id !== null && { id }), ...(since !== null && { since }) }
  const answer = (await controls.readHistory(query)) as HistoryAnswer
  if (json) printLine(JSON.stringify(answer))
  else printHistory(answer)
  return 0
}

function printHistory({ versions, rows = [], bookmark, known_since }: HistoryAnswer): void {
  if (versions !== undefined) {
    process.stdout.write(tableText([['stored', 'until', 'revision', 'content'], ...versions.map(versionRow)]))
  } else if (rows.length === 0) note('No overwritten or deleted documents are known.')
  else {
    const cells = rows.map(({ id, at, deleted, overwritten }) => {
      return [at, deleted ? 'deleted' : 'changed', String(overwritten), shown(id)]
    })
    process.stdout.write(tableText([['last change', 'what', 'old versions', 'document'], ...cells]))
  }
  if (bookmark !== null) note('There are more rows: raise --limit to see them.')
  if (known_since !== null) note(`The history before ${known_since} is incomplete.`)
}

function versionRow({ rev, deleted, stored_at, superseded_at, size, attachments }: ShownVersion): string[] {
  const files =
    attachments === 0 ? '' : `, ${attachments === 1 ? '1 attachment' : `${attachments} attachments`}`
  const what = deleted ? 'deleted' : `${inUnits(size)}${files}`
  return [stored_at ?? 'unknown', superseded_at ?? 'now', shown(rev), what]
}

async function rewind(command: Named<'rewind'>, controls: ControlCommands): Promise<number> {
  if (command.dryRun || !command.yes) {
    const plan = await run(command, controls, true)
    if (command.dryRun) return printResult(plan, command)
    const { restored, recreated, deleted } = plan.counts
    if (restored + recreated + deleted === 0) return printResult(plan, command)
    await confirm(plan, command)
  }
  return printResult(await run(command, controls, false), command)
}

async function run(
  { database, at, ids }: Named<'rewind'>,
  controls: ControlCommands,
  dryRun: boolean,
): Promise<RewindResult> {
  const bar = progressBar(process.stderr)
  const order = { database, at, dryRun, ...(ids.length > 0 && { ids }) }
  const word = dryRun ? 'checked' : 'processed'
  const result = controls.rewindDatabase(order, ({ looked_at, documents }) =>
    bar.show((100 * looked_at) / Math.max(documents, 1), `${word} ${looked_at} of ${documents} documents`),
  )
  return result.finally(() => bar.end())
}

/** @throws Error if standard input is not a terminal, or the user says no */
async function confirm({ counts }: RewindResult, { database, at, ids }: Named<'rewind'>): Promise<void> {
  const prompts = await terminalPrompts()
  if (prompts === null) {
    throw new Error(
      'Cannot ask, because this is not a terminal: add --yes, or --dry-run to see what would be done.',
    )
  }
  // Shows the time zone in which the user typed the time.
  const time = new Date(at).toString().replace(/ \(.*\)$/, '')
  const what = ids.length === 0 ? '' : ids.length === 1 ? '1 document of ' : `${ids.length} documents of `
  const question = `Restore ${what}the database ${shown(database)} to its state at ${time}?`
  await confirmOrStop(prompts, `${countsLine(counts)}\n${question}`)
}

/** @returns the exit code */
function printResult({ counts, rows, isWhole }: RewindResult, { dryRun, json }: Named<'rewind'>): number {
  if (json) printLine(JSON.stringify({ counts, rows, all: isWhole }))
  else {
    const cells = rows.map(({ id, outcome, reason }) => {
      return [outcome ?? '', shown(id ?? ''), ...(reason === undefined ? [] : [oneLine(String(reason))])]
    })
    process.stdout.write(tableText(cells))
    if (!isWhole) printLine('...')
    printLine(`${dryRun ? 'Dry run: ' : ''}${countsLine(counts)}${dryRun ? '. Nothing has changed.' : ''}`)
  }
  if (counts.expired > 0) note(`${counts.expired} left unchanged: their earlier version is no longer stored.`)
  if (counts.newer > 0) note(`${counts.newer} left unchanged: they were written to in the meantime.`)
  if (counts.refused > 0) note(`${counts.refused} left unchanged: the write was refused.`)
  return counts.refused > 0 ? 1 : 0
}

function countsLine(counts: RewindCounts): string {
  const shown = Object.entries(counts).filter(([name, count]) => count > 0 || name === 'restored')
  return shown.map(([name, count]) => `${count} ${name}`).join(', ')
}

/** Prints a note to standard error, because a program may read standard output. */
function note(line: string): void {
  console.error(line)
}

function printLine(line: string): void {
  process.stdout.write(`${line}\n`)
}
