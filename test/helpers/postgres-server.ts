/** A real PostgreSQL for tests, in a temporary folder and on a free port, without the settings of the machine's own. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, cp, mkdtemp, open, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Client } from 'pg'
import type { Test } from 'tap'
import { cleanEnv, freePort } from '../cli/child.ts'
import type { Certificate } from './certificates.ts'
import { CITUS_SETTINGS, createDistributed, HAS_CITUS } from './citus.ts'
import { type Account, accountForPostgres, watchedFolder } from './postgres-folder.ts'
import { programOf } from './proxies.ts'

const run = promisify(execFile)

export interface PostgresOptions {
  /** Commits reach the disk before they are answered, as an operator has it. By default nothing is synced. */
  readonly durable?: boolean
  /** Clients need this password, by SCRAM. By default nobody needs one. */
  readonly password?: string
  /** How text is ordered where nothing else is said: as in C (the default), or by an ICU locale such as `en-US`. */
  readonly icuLocale?: string
  /** It offers TLS with this certificate. */
  readonly certificate?: Certificate
  /** Settings of postgresql.conf, by name. */
  readonly settings?: Readonly<Record<string, string>>
}

type Row = Readonly<Record<string, unknown>>

export interface PostgresServer {
  /** `postgres://settee@127.0.0.1:PORT/postgres`: the owner of every new database, who is no superuser. */
  readonly address: string
  readonly port: number
  /** Where PostgreSQL keeps its files. */
  readonly dataDir: string
  /**
   * @param original the address of a database that nobody uses, to be copied; by default the new one is empty
   * @returns the address of a new database of the user `settee`
   */
  createDatabase(original?: string): Promise<string>
  /** `fast` rolls transactions back and writes everything; `immediate` ends at once, and the next start recovers. */
  stop(how: 'fast' | 'immediate'): Promise<void>
  /** Starts it again, on the same port. @throws Error with its log if it ends */
  start(): Promise<void>
  restart(how: 'fast' | 'immediate'): Promise<void>
  /** Stops all its processes where they are, until {@link thaw}; connections stay open. Linux only. */
  freeze(): Promise<void>
  thaw(): Promise<void>
  /**
   * Runs a statement as the superuser, on a connection of its own.
   * @param database by default `postgres`
   */
  query(sql: string, values?: readonly unknown[], database?: string): Promise<Row[]>
  /** What PostgreSQL has logged. */
  log(): Promise<string>
}

export interface PostgresStandby extends PostgresServer {
  /** Waits until it has everything that the primary has committed so far. */
  caughtUp(): Promise<void>
  /** From now on the primary's commits do not reach it. */
  disconnect(): Promise<void>
  /** Makes it a primary, on the next timeline. The old primary is not stopped. */
  promote(): Promise<void>
}

/** What a server needs that a standby takes from its primary. */
interface Instance {
  readonly folder: string
  readonly account: Account
  readonly port: number
  readonly options: PostgresOptions
}

/** Who owns the files of each server, for its standbys. */
const instances = new WeakMap<PostgresServer, Instance>()

/** A power cut of the machine loses data; the death of PostgreSQL alone loses nothing, since every commit is written. */
const FAST = { fsync: 'off', full_page_writes: 'off' }

/**
 * Starts PostgreSQL until the end of the test; nothing of it is left even if the test's process is killed. Takes about
 * a second. With {@link HAS_CITUS} its databases are distributed.
 * @throws Error with PostgreSQL's message if it does not start
 */
export async function startPostgres(
  t: Pick<Test, 'teardown'>,
  options: PostgresOptions = {},
): Promise<PostgresServer> {
  if (!HAS_CITUS) return startServer(t, options)
  const settings = { ...options.settings, ...CITUS_SETTINGS }
  const [coordinator, worker] = [
    await startServer(t, { ...options, settings }),
    await startServer(t, { ...options, settings }),
  ]
  const server = { ...coordinator, createDatabase: () => createDistributed(coordinator, worker) }
  instances.set(server, instances.get(coordinator)!)
  return server
}

async function startServer(t: Pick<Test, 'teardown'>, options: PostgresOptions): Promise<PostgresServer> {
  const account = await accountForPostgres()
  const folder = await watchedFolder(t, account)
  const instance = { folder, account, port: await freePort(), options }
  const passwordFile = join(folder, 'password')
  const file = await open(passwordFile, 'w', 0o644)
  await file.writeFile(options.password ?? '')
  await file.close()
  await run(
    programOf('initdb'),
    [
      ...['--pgdata', join(folder, 'data'), '--username', 'postgres', '--encoding', 'UTF8', '--locale', 'C'],
      ...['--no-sync', '--no-instructions'],
      ...(options.icuLocale === undefined
        ? []
        : ['--locale-provider', 'icu', '--icu-locale', options.icuLocale]),
      ...(options.password === undefined
        ? ['--auth', 'trust']
        : ['--auth', 'scram-sha-256', '--pwfile', passwordFile]),
    ],
    { ...account, cwd: folder },
  )
  if (options.certificate !== undefined) await installCertificate(instance, options.certificate)
  const server = serverOf(instance)
  await server.start()
  const password = options.password === undefined ? '' : ` PASSWORD '${options.password}'`
  await server.query(`CREATE ROLE settee LOGIN${password}`)
  return server
}

/**
 * Starts an asynchronous standby of a running server, with a copy of all its databases.
 * @param primary it must need no password
 */
export async function startStandby(
  t: Pick<Test, 'teardown'>,
  primary: PostgresServer,
): Promise<PostgresStandby> {
  const source = instances.get(primary)!
  const { account, options } = source
  const folder = await watchedFolder(t, account)
  await run(
    programOf('pg_basebackup'),
    [
      ...['--pgdata', join(folder, 'data'), '--write-recovery-conf', '--wal-method', 'stream'],
      ...['--checkpoint', 'fast', '--no-sync', '--host', '127.0.0.1', '--port', String(source.port)],
      ...['--username', 'postgres'],
    ],
    { ...account, cwd: folder },
  )
  const standby = serverOf({ folder, account, port: await freePort(), options })
  await standby.start()
  return {
    ...standby,
    caughtUp: async () => {
      const [row] = await primary.query("SELECT pg_logical_emit_message(false, 'settee', '')::text AS lsn")
      const reached = 'SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn AS yes'
      while (!(await standby.query(reached, [row?.lsn]))[0]?.yes) await sleep(10)
    },
    disconnect: async () => {
      await standby.query("ALTER SYSTEM SET primary_conninfo = ''")
      await standby.query('SELECT pg_reload_conf()')
      while ((await standby.query('SELECT 1 FROM pg_stat_wal_receiver')).length > 0) await sleep(10)
    },
    promote: async () => {
      await standby.query('SELECT pg_promote()')
    },
  }
}

/**
 * Makes a base backup of a running server.
 * @param server it must need no password
 * @returns puts the server back to it, at the same address, and starts it on the same timeline, as an operator does who starts a copy
 */
export async function baseBackup(server: PostgresServer): Promise<() => Promise<void>> {
  const { account, folder } = instances.get(server)!
  const copy = await mkdtemp(join(folder, 'backup-'))
  if (account.uid !== undefined) await chown(copy, account.uid, account.gid ?? account.uid)
  await run(
    programOf('pg_basebackup'),
    [
      ...['--pgdata', copy, '--wal-method', 'stream', '--checkpoint', 'fast', '--no-sync'],
      ...['--host', '127.0.0.1', '--port', String(server.port), '--username', 'postgres'],
    ],
    { ...account, cwd: folder },
  )
  return async () => {
    await server.stop('immediate')
    await rm(server.dataDir, { recursive: true })
    await cp(copy, server.dataDir, { recursive: true, preserveTimestamps: true })
    await run('chown', ['-R', '--reference', copy, server.dataDir])
    await chmod(server.dataDir, 0o700)
    await server.start()
  }
}

/** PostgreSQL refuses a key that others may read. */
async function installCertificate({ folder, account }: Instance, { cert, key }: Certificate): Promise<void> {
  for (const [name, text] of [['server.crt', cert] as const, ['server.key', key] as const]) {
    const path = join(folder, 'data', name)
    await writeFile(path, text, { mode: 0o600 })
    if (account.uid !== undefined) await chown(path, account.uid, account.gid ?? account.uid)
  }
}

function serverOf(instance: Instance): PostgresServer {
  const { folder, account, port, options } = instance
  const dataDir = join(folder, 'data')
  const addressOf = (user: string, database: string) => {
    const password = options.password === undefined ? '' : `:${encodeURIComponent(options.password)}`
    return `postgres://${user}${password}@127.0.0.1:${port}/${database}`
  }
  const settings = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    max_connections: '200',
    // Tests make databases often, and each one may copy this many bytes of the log at most before a checkpoint.
    max_wal_size: '2GB',
    ...(options.durable ? {} : FAST),
    ...(options.certificate && { ssl: 'on' }),
    ...options.settings,
  }
  let child: ChildProcess | undefined
  let exited: Promise<unknown> = Promise.resolve()
  let databases = 0

  const query: PostgresServer['query'] = async (sql, values = [], database = 'postgres') => {
    const client = new Client(addressOf('postgres', database))
    // It is told by the rejected query.
    client.on('error', () => undefined)
    await client.connect()
    try {
      return (await client.query<Row>(sql, [...values])).rows
    } finally {
      await client.end()
    }
  }
  const log = () => readFile(join(folder, 'log'), 'utf8')
  const signalAll = async (signal: 'SIGSTOP' | 'SIGCONT') => {
    // Without the first, which starts new ones, none can be missed.
    child?.kill(signal)
    for (const pid of await processesIn(dataDir)) process.kill(pid, signal)
  }
  const stop = async (how: 'fast' | 'immediate') => {
    child?.kill(how === 'fast' ? 'SIGINT' : 'SIGQUIT')
    await exited
  }
  const start = async () => {
    const output = await open(join(folder, 'log'), 'a', 0o644)
    const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const started = spawn(programOf('postgres'), ['-D', dataDir, ...args], {
      ...account,
      cwd: folder,
      env: cleanEnv(),
      stdio: ['ignore', output.fd, output.fd],
      // An interrupt from the terminal must reach the test first.
      detached: true,
    })
    child = started
    exited = once(started, 'exit')
    await output.close()
    for (;;) {
      const isUp = await query('SELECT 1').then(
        () => true,
        () => false,
      )
      if (isUp) return
      if (started.exitCode !== null || started.signalCode !== null) {
        throw new Error(`PostgreSQL has ended: ${await log()}`)
      }
      await sleep(10)
    }
  }
  const server: PostgresServer = {
    address: addressOf('settee', 'postgres'),
    port,
    dataDir,
    createDatabase: async (original) => {
      databases++
      const template = original === undefined ? '' : `TEMPLATE ${new URL(original).pathname.slice(1)}`
      await query(`CREATE DATABASE test_${databases} OWNER settee STRATEGY file_copy ${template}`)
      return addressOf('settee', `test_${databases}`)
    },
    stop,
    start,
    restart: async (how) => {
      await stop(how)
      await start()
    },
    freeze: () => signalAll('SIGSTOP'),
    thaw: () => signalAll('SIGCONT'),
    query,
    log,
  }
  instances.set(server, instance)
  return server
}

/** @returns the processes that work in a folder, as PostgreSQL's work in that of their data */
async function processesIn(folder: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const folders = await Promise.all(pids.map((pid) => readlink(`/proc/${pid}/cwd`).catch(() => null)))
  return pids.filter((_, index) => folders[index] === folder).map(Number)
}
