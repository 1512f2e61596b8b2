/** The calls of the settings' screens; docs/settee-api.md. */
import { ask, pathOf } from '../../api/client.ts'
import type { Setting, Unsafe } from './setting.ts'

export interface Configuration {
  readonly settings: readonly Setting[]
  readonly unsafe: readonly (Unsafe & { readonly section: string; readonly key: string | null })[]
  readonly left_out: number
}

export function readConfiguration(signal: AbortSignal): Promise<Configuration> {
  return ask<Configuration>('_settee/configuration', { signal })
}

/** The path of a key in CouchDB's configuration. */
export function configPath(section: string, key: string): string {
  return pathOf('_node', '_local', '_config', section, key)
}

export async function writeSetting(section: string, key: string, value: string): Promise<void> {
  await ask(configPath(section, key), { method: 'PUT', json: value })
}

/** Gives a key its default again. */
export async function resetSetting(section: string, key: string): Promise<void> {
  await ask(configPath(section, key), { method: 'DELETE' })
}

export interface Backup {
  readonly id: string
  readonly begun_at: string
  readonly ended_at: string
  readonly age: number
  readonly reason: 'schedule' | 'asked'
  readonly is_whole: boolean
  readonly verified: boolean
  readonly verified_at: string
  readonly databases: number
  readonly left_out: readonly { readonly name: string; readonly reason: string }[]
  readonly damaged: readonly { readonly name: string; readonly count: number }[]
  readonly bytes: number
  readonly new_bytes: number
  readonly damage: readonly string[]
}

export interface Backups {
  readonly backups: readonly Backup[]
  readonly running: {
    readonly id: string
    readonly database: string | null
    readonly databases_done: number
    readonly databases_total: number
    readonly percent: number
  } | null
  readonly verifying: {
    readonly id: string
    readonly files_done: number
    readonly files_total: number
    readonly percent: number
  } | null
  readonly last_failure: { readonly time: string; readonly reason: string } | null
}

export function readBackups(signal: AbortSignal): Promise<Backups> {
  return ask<Backups>('_settee/backups', { signal })
}

/** The databases of a backup, with their documents at that time. */
export interface BackedUp {
  readonly name: string
  readonly doc_count: number
  readonly bytes: number
}

export async function readDatabasesOf(id: string, signal: AbortSignal): Promise<readonly BackedUp[]> {
  const { databases } = await ask<{ databases: readonly BackedUp[] }>(pathOf('_settee', 'backups', id), {
    signal,
  })
  return databases
}

export async function makeBackup(): Promise<void> {
  await ask('_settee/backups', { json: {} })
}

export async function verifyBackup(id: string): Promise<void> {
  await ask(pathOf('_settee', 'backups', id, 'verify'), { json: {} })
}

export async function deleteBackup(id: string): Promise<void> {
  await ask(pathOf('_settee', 'backups', id), { method: 'DELETE' })
}

export interface Restored {
  readonly database: string
  readonly doc_count: number
  /** Where the replaced database is kept on the server; null: none was replaced. */
  readonly kept: string | null
}

/** @param as another name for it; null: it replaces the database of its own name */
export function restoreDatabase(id: string, database: string, as: string | null): Promise<Restored> {
  return ask<Restored>(pathOf('_settee', 'backups', id, 'restore'), {
    json: { database, ...(as !== null && { as }) },
  })
}

/** Server admins, with the hashes of their passwords. */
export async function readAdmins(signal: AbortSignal): Promise<readonly (readonly [string, string])[]> {
  const admins = await ask<Record<string, string>>(pathOf('_node', '_local', '_config', 'admins'), { signal })
  return Object.entries(admins).sort(([a], [b]) => (a < b ? -1 : 1))
}
