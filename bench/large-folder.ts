/** A data folder with very many empty databases and device tokens, made without a server, since that would take hours. */
import { copyFileSync, linkSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import {
  hashOfSecret,
  newSecret,
  OWNER_KIND,
  recordsOfToken,
  TOTAL_KEY,
  TOTAL_KIND,
  UNUSED,
} from '../src/auth/token-record.ts'
import { newUuid } from '../src/core/ids.ts'
import { accountKey } from '../src/storage/records.ts'
import { startOn } from './own-server.ts'
import { ADMIN } from './settee.ts'

/** Links of one file at most; ext4 allows 65,000. */
const LINKS = 50_000
/** Databases with a file of their own, since a file must not be open under two names: those that a trial opens. */
export const OWN_FILES = 1000

export const nameOf = (n: number): string => `db${String(n).padStart(7, '0')}`

/**
 * Makes the folder. The rows of server.sqlite are those that a server writes.
 * @param folder an empty folder
 * @param count databases, and as many tokens of other accounts
 * @returns the secret of the token of {@link ADMIN}, who is a member of each database
 */
export async function makeLargeFolder(folder: string, count: number): Promise<string> {
  const secret = await beginFolder(folder)
  const file = (n: number) => join(folder, 'databases', `${nameOf(n)}.sqlite`)
  for (let n = 1; n < count; n++) {
    if (n < OWN_FILES || n % LINKS === 0) copyFileSync(file(0), file(n))
    else linkSync(file(n < LINKS ? OWN_FILES - 1 : n - (n % LINKS)), file(n))
  }
  const server = new Sqlite(join(folder, 'server.sqlite'))
  server.exec('BEGIN')
  addDatabases(server, count)
  addTokens(server, count)
  server.exec('COMMIT')
  server.close()
  return secret
}

/** Has a server make the first database and a token. */
async function beginFolder(folder: string): Promise<string> {
  const server = await startOn(folder)
  const { peer } = server
  await peer.call('PUT', `/${nameOf(0)}`, 201)
  const security = { admins: { names: [], roles: [] }, members: { names: [ADMIN], roles: [] } }
  await peer.call('PUT', `/${nameOf(0)}/_security`, 200, JSON.stringify(security))
  const made = await peer.call('POST', `/_settee/tokens`, 201, JSON.stringify({ name: 'first' }))
  await server.end('SIGTERM')
  return (JSON.parse(made.toString()) as { token: string }).token
}

function addDatabases(server: Sqlite.Database, count: number): void {
  const get = server.prepare('SELECT value FROM server WHERE key = ?').pluck()
  let incarnation = Number(get.get('incarnation'))
  let seq = Number(get.get('update_seq'))
  const database = server.prepare('INSERT INTO database (name, incarnation) VALUES (?, ?)')
  const update = server.prepare("INSERT INTO database_update (seq, name, type) VALUES (?, ?, 'created')")
  for (let n = 1; n < count; n++) {
    database.run(nameOf(n), ++incarnation)
    update.run(++seq, nameOf(n))
  }
  const put = server.prepare('UPDATE server SET value = ? WHERE key = ?')
  put.run(incarnation, 'incarnation')
  put.run(seq, 'update_seq')
}

/** Adds tokens of as many accounts, as `Tokens.make` does. */
function addTokens(server: Sqlite.Database, count: number): void {
  const put = server.prepare('INSERT OR REPLACE INTO record (kind, key, value) VALUES (?, ?, ?)')
  const created = Date.now()
  for (let n = 1; n < count; n++) {
    const [id, account] = [newUuid(created), `user${n}`]
    const token = { id, account, name: 'phone', isAdmin: false, hash: hashOfSecret(newSecret()), created }
    for (const { kind, key, value } of recordsOfToken(token, UNUSED)) put.run(kind, key, value)
    put.run(OWNER_KIND, accountKey(account), id)
  }
  put.run(TOTAL_KIND, TOTAL_KEY, String(count))
}
