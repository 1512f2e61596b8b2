/** What `settee move` prints. Pure. */
import type { ImportOutcome } from '../backup/transfers.ts'
import { oneLine } from '../core/errors.ts'
import type { MovedDatabase } from '../move/database-move.ts'
import type { MovePlan, PlannedSetting } from '../move/move-plan.ts'
import type { MoveOutcome, SettingOutcome } from '../move/moves.ts'

/** What became of a file, or why it could not be imported. */
export type MovedFile =
  | { readonly database: string; readonly outcome: ImportOutcome }
  | { readonly database: string; readonly fault: string }

const STATES = { new: '', continued: 'moved before', merged: 'exists here' } as const

/** What a move would do. */
export function linesOfPlan(plan: MovePlan): string[] {
  const rows = plan.databases.map(({ target, documents, deleted, bytes, state }) => [
    target,
    `${documents}`,
    `${deleted}`,
    bytes === null ? '' : sizeOf(bytes),
    STATES[state],
  ])
  const bytes = plan.databases.reduce((sum, each) => sum + (each.bytes ?? 0), 0)
  return [
    oneLine(`From ${plan.from} (${plan.server})`),
    '',
    ...table(['database', 'documents', 'deleted', 'size', ''], rows),
    '',
    `About ${sizeOf(bytes)} are needed ${plan.freeBytes === null ? 'in the store' : `here, and ${sizeOf(plan.freeBytes)} are free`}.`,
    uuidLine(plan),
    ...settingLines(plan.settings),
    ...leftLines(plan),
    ...plan.databases.flatMap(noteLines),
    'Nothing was changed.',
  ]
}

function uuidLine({ uuid, takesUuid }: MovePlan): string {
  if (takesUuid) return `This server takes over the uuid ${uuid}.`
  return uuid === null ? 'The old server has no uuid.' : 'This server keeps its uuid.'
}

function settingLines(settings: readonly PlannedSetting[] | null): string[] {
  if (settings === null)
    return ['The configuration of the old server cannot be read: admins and settings stay.']
  return settings.map(({ section, key, value, isKept }) => {
    const shown = value === null ? '' : ` = ${value}`
    return oneLine(`Setting ${section}/${key}${shown}${isKept ? ': the value that is set here stays' : ''}`)
  })
}

function leftLines({ left }: MovePlan): string[] {
  return left.map(({ name, reason }) => oneLine(`Not moved: ${name}: ${reason}.`))
}

/** What was moved, and the verification. */
export function linesOfMove(outcome: MoveOutcome): string[] {
  const { plan, databases, failed, settings, hasUuid } = outcome
  const rows = databases.map((each) => [
    each.name,
    `${each.documents}`,
    `${each.deleted}`,
    `${each.leaves}`,
    each.oldDigest.slice(0, 12),
    each.newDigest.slice(0, 12),
    `${each.sampled}`,
    `${each.localDocs}`,
    each.isComplete ? 'complete' : 'NOT COMPLETE',
  ])
  const head = ['database', 'documents', 'deleted', 'leaves', 'there', 'here', 'sampled', '_local', '']
  return [
    ...table(head, rows),
    '',
    'Leaves are all current revisions with conflicts and tombstones; "there" and "here" are digests of them.',
    ...plan.databases.flatMap(noteLines),
    ...databases.flatMap(noteLines),
    ...failed.map(({ name, reason }) => oneLine(`Not moved: ${name}: ${reason}`)),
    ...leftLines(plan),
    ...settings.map(settingLine),
    ...(plan.settings === null ? settingLines(null) : []),
    hasUuid ? `This server has the uuid ${plan.uuid} now.` : 'This server keeps its uuid.',
    summaryLine(outcome),
  ]
}

function noteLines({ name, notes }: Pick<MovedDatabase, 'name' | 'notes'>): string[] {
  return notes.map((note) => oneLine(`${name}: ${note}`))
}

function settingLine({ section, key, outcome, reason }: SettingOutcome): string {
  if (outcome === 'set') return oneLine(`Setting ${section}/${key}: as on the old server`)
  if (outcome === 'kept') return oneLine(`Setting ${section}/${key}: the value that was set here stays`)
  return oneLine(`Setting ${section}/${key}: refused (${reason})`)
}

function summaryLine({ databases, failed }: MoveOutcome): string {
  const incomplete = failed.length + databases.filter(({ isComplete }) => !isComplete).length
  const closed = databases.filter(({ takesWrites }) => !takesWrites).length
  if (incomplete === 0 && closed > 0) {
    return `All documents are here, but ${closed} of ${databases.length} databases take no writes: mend or delete the design documents that are named above.`
  }
  if (incomplete === 0) return `Everything is here: ${databases.length} databases.`
  return `${incomplete} databases are not complete; run the same command again.`
}

/** What was imported from a folder. */
export function linesOfFiles(files: readonly MovedFile[]): string[] {
  return files.flatMap((file) => {
    if ('fault' in file) return [oneLine(`Not moved: ${file.database}: ${file.fault}`)]
    const { documents, deleted, refused, refusals } = file.outcome
    return [
      oneLine(`${file.database}: ${documents} documents, ${deleted} deleted documents`),
      ...(refused > 0 ? [`  ${refused} revisions were refused:`] : []),
      ...refusals.map((refusal) => oneLine(`  ${refusal}`)),
    ]
  })
}

const UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB'] as const

function sizeOf(bytes: number): string {
  let at = 0
  let size = bytes
  for (; size >= 1000 && at < UNITS.length - 1; at++) size /= 1000
  return `${size < 10 && at > 0 ? size.toFixed(1) : Math.round(size)} ${UNITS[at]}`
}

/** Columns as wide as their widest cell; numbers stand at the right. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [head, ...rows].map((row) => row.map(oneLine))
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)))
  return all.map((row) => {
    const cells = row.map((cell, column) => {
      const isNumber = rows.every((each) => /^[\d.-]*(?: (?:[kMGT]B|bytes))?$/.test(each[column] ?? ''))
      return isNumber ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0)
    })
    return cells.join('  ').trimEnd()
  })
}
