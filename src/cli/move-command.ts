/** `settee move`: asks for the password, shows the progress, and prints what was moved. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { secretFromEnvironment } from '../config/sources.ts'
import { oneLine } from '../core/errors.ts'
import { USERS_DATABASE } from '../core/ids.ts'
import type { MoveRequest } from '../move/move-plan.ts'
import type { MoveProgress } from '../move/moves.ts'
import { isAddress, type MoveCommand } from './move-arguments.ts'
import { linesOfFiles, linesOfMove, linesOfPlan, type MovedFile } from './move-report.ts'
import { dataFolder, withControl } from './operate.ts'
import { type ProgressBar, progressBar } from './progress-bar.ts'
import { readPassword, terminalPrompts } from './prompts.ts'
import { importFile } from './transfer-command.ts'

/** @returns the exit code: 1 after a failure, or unless everything is here */
export async function runMoveCommand(command: MoveCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    return isAddress(command.from) ? await moveServer(command, env) : await moveFolder(command, env)
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

async function moveServer(command: MoveCommand, env: NodeJS.ProcessEnv): Promise<number> {
  const { databases, merge: isMerged, keepUuid: keepsUuid, dryRun, json } = command
  const url = await withPassword(command, env)
  const request: MoveRequest = { url, databases, isMerged, keepsUuid }
  const dataDir = dataFolder(command.data, env)
  if (dryRun) {
    const plan = await withControl(dataDir, env, (controls) => controls.planMove(request))
    print(json ? [JSON.stringify(plan)] : linesOfPlan(plan))
    return 0
  }
  const bar = progressBar(process.stderr)
  const outcome = await withControl(dataDir, env, (controls) =>
    controls.move(request, (progress) => showProgress(bar, progress)),
  ).finally(() => bar.end())
  print(json ? [JSON.stringify(outcome)] : linesOfMove(outcome))
  return outcome.failed.length === 0 &&
    outcome.databases.every(({ isComplete, takesWrites }) => isComplete && takesWrites)
    ? 0
    : 1
}

/** @returns the address with the password @throws Error if it is not valid, or there is nobody to ask */
async function withPassword({ from, stdin }: MoveCommand, env: NodeJS.ProcessEnv): Promise<string> {
  if (!URL.canParse(from)) throw new Error('The address of the old server is not valid.')
  const url = new URL(from)
  if (url.username === '' || url.password !== '') return from
  const given = stdin
    ? await readPassword(process.stdin)
    : await secretFromEnvironment(env, 'SETTEE_MOVE_PASSWORD')
  const password = given ?? (await askPassword(url))
  url.password = encodeURIComponent(password)
  return url.href
}

async function askPassword({ username, host }: URL): Promise<string> {
  const prompts = await terminalPrompts()
  if (prompts !== null) return prompts.password(`Password of ${username} at ${host}`)
  throw new Error(
    'Give the password of the old server in its address, in SETTEE_MOVE_PASSWORD, or with --stdin.',
  )
}

const PHASES = { copying: 'copying', comparing: 'comparing', checkpoints: 'checkpoints of devices' } as const

function showProgress(bar: ProgressBar, { database, done, of, phase, documents, total }: MoveProgress): void {
  const share = total === null || total === 0 ? 0 : Math.min(documents / total, 1)
  const step = phase === 'copying' ? 0.7 * share : phase === 'comparing' ? 0.7 + 0.25 * share : 0.95
  const count = total === null ? `${documents}` : `${documents} of ${total}`
  const percent = (100 * (done + step)) / Math.max(of, 1)
  bar.show(percent, `${database} (${done + 1} of ${of}): ${PHASES[phase]}, ${count}`)
}

/** The files that couchbackup wrote, each with the name of its database. */
const FILE = /^(.+?)\.(?:backup|couchbackup|txt|jsonl?)(?:\.gz)?$/

/** Imports every file of a folder, one after the other. */
async function moveFolder(command: MoveCommand, env: NodeJS.ProcessEnv): Promise<number> {
  const { from: folder, databases, merge, dryRun, data } = command
  const files = await filesIn(folder, databases)
  if (dryRun) {
    print(files.map(({ file, database }) => `${database}\t${file}`))
    return 0
  }
  const moved: MovedFile[] = []
  for (const { file, database } of files) {
    const options = { database, from: join(folder, file), merge: merge || database === USERS_DATABASE, data }
    try {
      moved.push({ database, outcome: await importFile(options, env) })
    } catch (error) {
      moved.push({ database, fault: (error as Error).message })
    }
  }
  print(linesOfFiles(moved))
  return moved.every((each) => 'outcome' in each && each.outcome.refused === 0) ? 0 : 1
}

interface BackupFile {
  readonly file: string
  readonly database: string
}

/** @throws Error with a one-line message */
async function filesIn(folder: string, databases: readonly string[] | null): Promise<BackupFile[]> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`The folder ${folder} cannot be read (${error.code}).`, { cause: error })
  })
  const files = names.sort().flatMap((file) => {
    const [, name] = FILE.exec(file) ?? []
    return name === undefined ? [] : [{ file, database: unescaped(name) }]
  })
  const wanted = databases === null ? files : files.filter(({ database }) => databases.includes(database))
  const missing = databases?.find((name) => !files.some(({ database }) => database === name))
  if (missing !== undefined) throw new Error(`The folder ${folder} has no file of the database ${missing}.`)
  if (wanted.length === 0)
    throw new Error(`The folder ${folder} has no couchbackup file, such as notes.backup.`)
  return wanted
}

function unescaped(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    return name
  }
}

function print(lines: readonly string[]): void {
  process.stdout.write(lines.map((line) => `${line}\n`).join(''))
}
