/** Holds what a power cut has left against what keeping-workload.ts was told: copies of every kind, and the databases. */
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { isBackupId, SUMS_FILE } from '../../../src/backup/backup-format.ts'
import { problemsOf } from './check.ts'
import type { Ledger } from './ledger.ts'

/** @returns what is not as it was acknowledged: copies, whole where they have a name, and then the databases */
export async function keepingProblems(folder: string, ledger: Ledger, events: number): Promise<string[]> {
  const copies = [
    ...backupProblems(join(folder, 'backups'), ledger, events),
    ...upgradeProblems(join(folder, 'before-upgrade'), ledger, events),
    ...replacedProblems(join(folder, 'replaced'), ledger, events),
  ]
  return [...copies, ...(await problemsOf(folder, ledger, events))]
}

function namesIn(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder) : []
}

/** What is called a backup is whole; one that was acknowledged is there, and one that was removed is not. */
function backupProblems(folder: string, ledger: Ledger, events: number): string[] {
  const there = new Set(namesIn(folder).filter(isBackupId))
  const missing = ledger.keys('backup|').filter((key) => {
    return !there.has(key.slice('backup|'.length)) && !ledger.allowed(key, events).includes(null)
  })
  const back = ledger.keys('removed|').filter((key) => {
    return there.has(key.slice('removed|'.length)) && !ledger.allowed(key, events).includes(null)
  })
  return [
    ...[...there].flatMap((id) => wrongFiles(join(folder, id)).map((file) => `backup ${id}: ${file}`)),
    ...missing.map((key) => `${key} is gone`),
    ...back.map((key) => `${key} is back`),
  ]
}

function wrongFiles(backup: string): string[] {
  const sums = join(backup, SUMS_FILE)
  if (!existsSync(sums)) return [SUMS_FILE]
  const lines = readFileSync(sums, 'utf8').trimEnd().split('\n')
  const wrong = lines.filter((line) => {
    const [sum, file = ''] = line.split('  ')
    return sumOf(join(backup, file)) !== sum
  })
  return wrong.map((line) => `not what it was: ${line}`)
}

/** @returns null when it is not there */
function sumOf(path: string): string | null {
  return existsSync(path) ? createHash('sha256').update(readFileSync(path)).digest('hex') : null
}

/** The copy of an older file is the file, byte for byte, and there before the file is another. */
function upgradeProblems(folder: string, ledger: Ledger, events: number): string[] {
  return ledger.keys('upgraded|').flatMap((key) => {
    const name = `${key.slice('upgraded|'.length)}.sqlite`
    const [sum = null] = namesIn(folder).map((schema) => sumOf(join(folder, schema, name)))
    const allowed = ledger.allowed(key, events)
    return allowed.includes(sum) ? [] : [`${key}: the copy is ${sum} instead of ${allowed.join(' or ')}`]
  })
}

/** What a restore has replaced can be opened, with all that it held. */
function replacedProblems(folder: string, ledger: Ledger, events: number): string[] {
  return ledger.keys('replaced|').flatMap((key) => {
    const allowed = ledger.allowed(key, events)
    const path = join(folder, key.slice('replaced|'.length))
    const found = existsSync(path) ? documentsIn(path) : null
    // A crash before it was told gives the name back.
    if (allowed.includes(found) || allowed.includes(null)) return []
    return [`${key}: ${found} instead of ${allowed.join(' or ')}`]
  })
}

/** How many documents a file holds, as SQLite finds it with its log. */
function documentsIn(path: string): string {
  const file = new Sqlite(path)
  try {
    const said = file.pragma('integrity_check', { simple: true })
    if (said !== 'ok') return String(said)
    return String(file.prepare('SELECT count(*) FROM doc WHERE NOT deleted').pluck().get())
  } catch (error) {
    return (error as Error).message
  } finally {
    file.close()
  }
}
