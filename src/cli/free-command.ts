/** `settee size --free`: shows what frees space on the disk of the data folder, and does it. */
import { type Cure, describeCure, type SpaceReport } from '../backup/space-cures.ts'
import type { ControlCommands } from '../control/control-commands.ts'
import { oneLine, shown } from '../core/errors.ts'
import type { FreeCommand } from './backup-arguments.ts'
import { dataFolder, withControl } from './operate.ts'
import { terminalPrompts } from './prompts.ts'
import { shown as bytesText } from './size-command.ts'

/** @returns the exit code: 1 after a failure */
export async function runFreeCommand(command: FreeCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    await withControl(dataFolder(command.data, env), env, (controls) => free(controls, command))
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

async function free(controls: ControlCommands, { steps, json }: FreeCommand): Promise<void> {
  const report = await controls.readSpace({})
  if (steps !== null) return freeAll(controls, report, steps)
  process.stdout.write(json ? `${JSON.stringify(report)}\n` : reportText(report))
  const prompts = json ? null : await terminalPrompts()
  if (prompts === null) return
  for (const cure of report.cures) {
    if (await prompts.confirm(`Free ${describeCure(cure, report.keepDays)}?`)) await freeOne(controls, cure)
  }
}

async function freeAll(
  controls: ControlCommands,
  { cures }: SpaceReport,
  steps: NonNullable<FreeCommand['steps']>,
): Promise<void> {
  for (const step of new Set(steps)) {
    const cure = cures.find(({ name }) => name === step)
    if (cure === undefined) process.stdout.write(`${step}: there is nothing to free.\n`)
    else await freeOne(controls, cure)
  }
}

async function freeOne(controls: ControlCommands, { name }: Cure): Promise<void> {
  const { freed } = await controls.freeSpace({ name })
  process.stdout.write(`${name}: freed ${bytesText(freed)}.\n`)
}

/** A line for the disk, and one for each step. */
export function reportText({ free, floor, keepDays, cures, unread }: SpaceReport): string {
  const disk = `${bytesText(free)} are free; settee reserves the last ${bytesText(floor)} (settee/free_space_floor).\n`
  const lines = cures.map((cure) => `${cure.name}: ${describeCure(cure, keepDays)}\n`)
  const faults = unread.map((name) => `${shown(name)} cannot be read.\n`)
  return `${disk}${lines.join('') || 'settee has nothing that could be removed.\n'}${faults.join('')}`
}
