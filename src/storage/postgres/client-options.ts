/** What pg needs to connect to the address of a store. Passwords are read for each connection, so that they can be changed. */
import { readFile, stat } from 'node:fs/promises'
import { homedir, hostname } from 'node:os'
import { join } from 'node:path'
import type { ConnectionOptions } from 'node:tls'
import type pg from 'pg'
import type { StoreAddress, StoreTls } from '../store-address.ts'

/** How the names of settee's connections begin in pg_stat_activity. */
export const APPLICATION = 'settee'

/**
 * The connection is called `settee`, with the name of this machine, in pg_stat_activity.
 * @param env gives PGPASSWORD and PGPASSFILE
 */
export function clientOptions(address: StoreAddress, env: NodeJS.ProcessEnv = process.env): pg.ClientConfig {
  const { host, port, user, database, tls } = address
  return {
    host,
    port,
    user,
    database,
    password: () => readPassword(address, env),
    // Else pg takes PGSSLMODE.
    ssl: tls === null ? false : tlsOptions(tls),
    application_name: `${APPLICATION} ${hostname()}`,
  }
}

function tlsOptions({ checks, roots }: StoreTls): ConnectionOptions {
  return {
    rejectUnauthorized: checks !== 'none',
    ...(roots !== null && { ca: roots }),
    ...(checks === 'ca' && { checkServerIdentity: () => undefined }),
  }
}

/**
 * The password of the file that the settings name, or else PGPASSWORD, or else that of PostgreSQL's password file ("The
 * Password File" in its manual).
 * @returns the empty text if there is none: then PostgreSQL must not ask for one
 * @throws the file system's error for a file that was named
 */
async function readPassword(address: StoreAddress, env: NodeJS.ProcessEnv): Promise<string> {
  const { passwordFile } = address
  // Editors and `echo` add a line break that is not part of the password.
  if (passwordFile !== null) return (await readFile(passwordFile, 'utf8')).replace(/[\r\n]+$/, '')
  if (env.PGPASSWORD) return env.PGPASSWORD
  if (env.PGPASSFILE) return passwordIn(await readClosed(env.PGPASSFILE), address) ?? ''
  const text = await readClosed(join(homedir(), '.pgpass')).catch(() => '')
  return passwordIn(text, address) ?? ''
}

/** @throws Error if others may read the file, which libpq ignores then; the file system's error */
async function readClosed(path: string): Promise<string> {
  const { mode } = await stat(path)
  if ((mode & 0o077) !== 0) throw new Error(`Others may read the password file ${path}: chmod 600 ${path}`)
  return readFile(path, 'utf8')
}

/**
 * The password of the first line that fits: `host:port:database:user:password`, where `*` fits everything, and `\` comes
 * before a `:` or `\` of a value. A Unix socket has the host `localhost`.
 * @param text of a password file
 * @returns undefined if no line fits
 */
export function passwordIn(
  text: string,
  { host, port, database, user }: Omit<StoreAddress, 'passwordFile' | 'tls'>,
): string | undefined {
  const wanted = [host.startsWith('/') ? 'localhost' : host, String(port), database, user]
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith('#')) continue
    const fields = fieldsOf(line)
    if (fields.length >= 5 && wanted.every((value, at) => fields[at] === '*' || fields[at] === value))
      return fields[4]
  }
  return undefined
}

function fieldsOf(line: string): string[] {
  const fields = line.match(/(?:\\.|[^:\\])*(?::|$)/g) ?? []
  return fields.map((field) => field.replace(/:$/, '').replace(/\\(.)/g, '$1'))
}
