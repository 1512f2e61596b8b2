/** `settee history` and `settee rewind`: what documents were, for whoever may open the data folder. */
import type { RewindCounts } from '../documents/time-machine-calls.ts'
import type { Controls } from '../maintenance/controls.ts'
import type { RewindResult } from '../maintenance/history-controls.ts'
import { dataFolder } from './data-folder.ts'
import { oneLine, shown } from './one-line.ts'
import { withControls } from './operate.ts'
import { Terminal } from './terminal.ts'
import type { TimeMachineCommand } from './time-machine-arguments.ts'

type Named<Name> = Extract<TimeMachineCommand, { readonly name: Name }>

/** @returns the exit code: 1 when it failed, which one line on the standard error explains */
export async function runTimeMachineCommand(
  command: TimeMachineCommand,
  env: NodeJS.ProcessEnv,
): Promise<number> {
  try {
    await withControls(dataFolder(command.data, env), env, (controls) =>
      command.name === 'history' ? history(command, controls) : rewind(command, controls),
    )
    return 0
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
}

async function history({ database, id, limit, json }: Named<'history'>, controls: Controls): Promise<void> {
  const asked = { database, limit, ...(id !== undefined && { id }) }
  const answer = (await controls.readHistory(asked)) as HistoryAnswer
  if (json) {
    say(JSON.stringify(answer))
    return
  }
  for (const version of answer.versions ?? []) say(versionLine(version))
  for (const { id: which, at, deleted, overwritten } of answer.rows ?? []) {
    say([at, deleted ? 'deleted' : 'changed', String(overwritten), shown(which)].join('\t'))
  }
}

function versionLine({ rev, deleted, stored_at, superseded_at, size, attachments }: ShownVersion): string {
  const until = superseded_at ?? 'now'
  const what = deleted ? 'deleted' : `${size} bytes`
  const files = attachments === 0 ? '' : `, ${attachments} attachments`
  return `${stored_at ?? 'unknown'}\t${until}\t${shown(rev)}\t${what}${files}`
}

async function rewind(command: Named<'rewind'>, controls: Controls): Promise<void> {
  const { database, at, ids, json } = command
  const order = { database, at, ...(ids.length > 0 && { ids }) }
  const ask = !command.dryRun && !command.yes
  if (command.dryRun || ask) {
    const plan = await controls.rewindDatabase({ ...order, dryRun: true }, progressLine('looked at'))
    if (command.dryRun) return tell(plan, json)
    const { restored, recreated, deleted } = plan.counts
    if (restored + recreated + deleted === 0) return tell(plan, json)
    await confirm(plan, command)
  }
  tell(await controls.rewindDatabase({ ...order, dryRun: false }, progressLine('done with')), json)
}

/** @throws Error when nobody sits there, or nothing is to be done */
async function confirm({ counts }: RewindResult, { database, at }: Named<'rewind'>): Promise<void> {
  if (!process.stdin.isTTY) {
    throw new Error(
      'This is asked about on a terminal only; add --yes, or --dry-run to see what would be done.',
    )
  }
  const time = new Date(at).toISOString()
  const question = `${countsLine(counts)}\r\nMake the database ${shown(database)} what it was at ${time}? [y/N] `
  const [answer = ''] = await new Terminal(process.stdin, process.stderr).ask([question], true)
  if (!/^y(?:es)?$/i.test(answer.trim())) throw new Error('Nothing has changed.')
}

function tell({ counts, rows, isWhole }: RewindResult, json: boolean): void {
  if (json) {
    say(JSON.stringify({ counts, rows, all: isWhole }))
    return
  }
  for (const { id, outcome, reason } of rows) {
    say([outcome ?? '', shown(id ?? ''), ...(reason === undefined ? [] : [shown(String(reason))])].join('\t'))
  }
  if (!isWhole) say('...')
  say(countsLine(counts))
}

function countsLine(counts: RewindCounts): string {
  const told = Object.entries(counts).filter(([name, count]) => count > 0 || name === 'restored')
  return told.map(([name, count]) => `${count} ${name}`).join(', ')
}

/** On a terminal alone: what goes to a file is what came of it. */
function progressLine(word: string) {
  return ({ looked_at, documents }: { looked_at: number; documents: number }) => {
    if (process.stderr.isTTY)
      process.stderr.write(`\r${word} ${looked_at} of ${documents} documents\u001b[K\r`)
  }
}

function say(line: string): void {
  process.stdout.write(`${line}\n`)
}
