/** A folder in which PostgreSQL may run, under an account that may run it, and its end. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdtemp, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** As the process began: a test may choose a folder that the account may not enter. */
const TEMPORARY = tmpdir()

/** For `spawn`; empty: the account of the test. */
export interface Account {
  readonly uid?: number
  readonly gid?: number
}

/** @returns the account under which PostgreSQL runs, since it refuses root: `postgres`, or `nobody` where that is missing */
export async function accountForPostgres(): Promise<Account> {
  if (process.getuid?.() !== 0) return {}
  const lines = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'))
  const entry = ['postgres', 'nobody'].map((name) => lines.find(([other]) => other === name)).find(Boolean)
  if (entry === undefined)
    throw new Error('PostgreSQL does not run as root, and nobody else is in /etc/passwd.')
  return { uid: Number(entry[2]), gid: Number(entry[3]) }
}

/**
 * What happens when its standard input ends, which is when the test ends, or its process is killed: PostgreSQL is stopped
 * at once, by its main process, which removes shared memory; processes that work in the folder after 5 seconds are killed.
 */
const WATCHER = `
cat > /dev/null
cd /
of_postgres() {
  for link in /proc/[0-9]*/cwd; do
    [ "$link" -ef "$1/data" ] && basename "\${link%/cwd}"
  done
}
signal() { for pid in $2; do kill "-$1" "$pid" 2> /dev/null; done; }
[ -f "$1/data/postmaster.pid" ] && signal QUIT "$(head -n 1 "$1/data/postmaster.pid")"
for turn in $(seq 500); do
  pids="$(of_postgres "$1")"
  [ -z "$pids" ] && break
  signal CONT "$pids"
  sleep 0.01
done
signal KILL "$pids"
rm -rf "$1"
`

/**
 * Makes a folder of the account for a server whose data will be in its folder `data`. At the end of the test, or of its
 * process, the server is stopped, and the folder is removed.
 */
export async function watchedFolder(t: Pick<Test, 'teardown'>, account: Account): Promise<string> {
  const folder = await mkdtemp(join(TEMPORARY, 'settee-postgres-'))
  if (account.uid !== undefined) await chown(folder, account.uid, account.gid ?? account.uid)
  const watcher = spawn('sh', ['-c', WATCHER, 'sh', folder], {
    stdio: ['pipe', 'ignore', 'inherit'],
    // It outlives the process group of the test.
    detached: true,
  })
  const exited = once(watcher, 'exit')
  watcher.unref()
  t.teardown(async () => {
    watcher.ref()
    watcher.stdin.end()
    await exited
  })
  return folder
}
