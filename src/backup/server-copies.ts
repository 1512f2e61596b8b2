/** Finds the copies of server.sqlite: the one beside it, and those of backups. */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { SERVER_COPY } from '../storage/storage-engine.ts'
import type { ServerCopy } from '../threads/databases.ts'
import { type BackupManifest, isBackupId, readManifest } from './backup-format.ts'
import { pathIn } from './foreign-files.ts'

/**
 * @param dataDir the data folder
 * @param backups the folder of the backups
 * @returns the newest first. Without backups, if several servers use their folder: the damaged file does not say whose it is
 */
export async function serverCopies(dataDir: string, backups: string): Promise<readonly ServerCopy[]> {
  const path = join(dataDir, SERVER_COPY)
  const found = await stat(path).catch(() => null)
  const own = found === null ? [] : [{ path, time: found.mtimeMs }]
  return [...own, ...(await copiesInBackups(backups))].sort((a, b) => b.time - a.time)
}

/** @returns one line for the operator of a server that has started from a copy */
export function startedFromCopy({ path, time }: ServerCopy): string {
  return (
    `server.sqlite was damaged, so it was replaced by its copy of ${new Date(time).toISOString()} (${path}). ` +
    'What was changed in it since is as it was then: device tokens and tenants that were made are gone, and sessions, ' +
    'tokens and tenants that were ended, revoked or deleted are valid again. Check them. The damaged file is kept in replaced/.'
  )
}

async function copiesInBackups(backups: string): Promise<ServerCopy[]> {
  const names = await readdir(backups).catch(() => [])
  const manifests: BackupManifest[] = []
  for (const name of names.filter(isBackupId)) {
    const manifest = await readManifest(join(backups, name)).catch(() => null)
    if (manifest?.id === name) manifests.push(manifest)
  }
  if (new Set(manifests.map(({ server_uuid: uuid }) => uuid)).size > 1) return []
  const copies: ServerCopy[] = []
  for (const { id, server, begun_at: begunAt } of manifests) {
    const path = await pathIn(join(backups, id), server.file).catch(() => null)
    if (path !== null) copies.push({ path, time: Date.parse(begunAt) || 0 })
  }
  return copies
}
