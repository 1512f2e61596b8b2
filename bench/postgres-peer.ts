/** settee on PostgreSQL as a peer: a PostgreSQL that syncs, one or several nodes, and nginx before several. */
import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/cli/child.ts'
import { startPostgres } from '../test/helpers/postgres-server.ts'
import { programOf } from '../test/helpers/proxies.ts'
import { type Peer, peerAt } from './peer.ts'
import { startServer } from './server-process.ts'
import { ADMIN, ADMIN_ENV, addressIn, mainOf, type SetteeOptions } from './settee.ts'
import { watchWaits } from './waits.ts'

/** As an operator would set it for a machine of this size. */
const SETTINGS = { shared_buffers: '512MB', max_wal_size: '4GB', checkpoint_timeout: '15min' }

interface PostgresOptions extends SetteeOptions {
  /** Whether the waits in PostgreSQL are figures of each measurement. */
  readonly showsWaits?: boolean
}

/**
 * @param nodes how many; from two on, nginx gives each request to the next one
 * @throws Error when a program is missing, or ends before it is ready
 */
export async function startOnPostgres(
  name: string,
  checkout: string,
  nodes: number,
  { env = {}, isHosted = false, showsWaits = false }: PostgresOptions = {},
): Promise<Peer> {
  const ends: (() => unknown)[] = []
  const stop = async () => {
    for (const end of ends.splice(0).reverse()) await end()
  }
  try {
    const teardown = (end: () => unknown) => ends.push(end)
    const server = await startPostgres({ teardown }, { durable: true, settings: SETTINGS })
    const store = await server.createDatabase()
    const peers: Peer[] = []
    for (let n = 1; n <= nodes; n++) {
      const node = await startNode(checkout, store, { env, isHosted })
      teardown(() => node.close())
      peers.push(node)
    }
    const [first] = peers as [Peer]
    const url = nodes === 1 ? first.address : await startNginx(teardown, peers)
    const peer = peerAt(`${name}, ${nodes} on PostgreSQL`, url, {
      durability: 'PostgreSQL: fsync and synchronous_commit on',
      stop,
      ...(first.startMs !== undefined && { startMs: first.startMs }),
    })
    return {
      ...peer,
      cpuSeconds: () => sumOf(peers.map((node) => node.cpuSeconds())),
      storeCpuSeconds: () => postgresSeconds(server.dataDir),
      ...(showsWaits && { watchWaits: () => watchWaits(superuserOf(server.address)) }),
      memory: async () => sumOf(await Promise.all(peers.map((node) => node.memory()))),
    }
  } catch (error) {
    await stop()
    throw error
  }
}

function superuserOf(address: string): string {
  return address.replace('//settee@', '//postgres@')
}

function startNode(checkout: string, store: string, { env, isHosted }: SetteeOptions): Promise<Peer> {
  const options = ['--port', '0', '--store', store, ...(isHosted ? ['--hosted'] : [])]
  return startServer({
    name: 'node',
    durability: '',
    args: (folder) => [mainOf(checkout), 'serve', '--data', folder, ...options],
    env: { ...env, ...ADMIN_ENV },
    address: addressIn,
  })
}

function sumOf(values: readonly (number | null)[]): number | null {
  return values.reduce<number | null>(
    (sum, value) => (sum === null || value === null ? null : sum + value),
    0,
  )
}

/** Clock ticks in a second: sysconf(_SC_CLK_TCK) of Linux. */
const TICKS = 100

/** The CPU time of all processes of a PostgreSQL so far, ended ones included. */
function postgresSeconds(dataDir: string): number {
  const [first] = readFileSync(join(dataDir, 'postmaster.pid'), 'utf8').split('\n')
  let ticks = 0
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    const fields = statOf(pid)
    if (pid !== first && fields?.parent !== first) continue
    ticks += (fields?.own ?? 0) + (pid === first ? (fields?.ofEnded ?? 0) : 0)
  }
  return ticks / TICKS
}

/** @returns null if the process has ended */
function statOf(
  pid: string,
): { readonly parent: string; readonly own: number; readonly ofEnded: number } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // proc(5): behind the name in brackets are the state, the parent and, from the 14th field on, the times.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [utime, stime, cutime, cstime] = fields.slice(11, 15).map(Number) as [
      number,
      number,
      number,
      number,
    ]
    return { parent: fields[1] as string, own: utime + stime, ofEnded: cutime + cstime }
  } catch {
    return null
  }
}

/** @returns the address of an nginx that sends each request to the next node */
async function startNginx(
  teardown: (end: () => unknown) => unknown,
  nodes: readonly Peer[],
): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-bench-nginx-'))
  const port = await freePort()
  await mkdir(join(folder, 'temporary'))
  await writeFile(join(folder, 'nginx.conf'), nginxConfiguration(folder, port, nodes))
  const child: ChildProcess = spawn(programOf('nginx'), ['-p', folder, '-c', 'nginx.conf'], {
    stdio: 'inherit',
  })
  teardown(async () => {
    child.kill('SIGTERM')
    await rm(folder, { recursive: true, force: true })
  })
  const url = `http://127.0.0.1:${port}`
  while (
    !(await fetch(url).then(
      () => true,
      () => false,
    ))
  ) {
    if (child.exitCode !== null) throw new Error('nginx has ended')
    await sleep(20)
  }
  return url.replace('//', `//${ADMIN}:${ADMIN}@`)
}

function nginxConfiguration(folder: string, port: number, nodes: readonly Peer[]): string {
  const servers = nodes.map(({ origin }) => `server ${new URL(origin).host};`).join(' ')
  const folders = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/temporary;`,
  )
  return `daemon off; master_process off; pid ${folder}/pid; error_log stderr error;
events { worker_connections 4096; }
http {
  access_log off; ${folders.join(' ')} client_max_body_size 0;
  upstream nodes { ${servers} keepalive 256; }
  server {
    listen 127.0.0.1:${port}; keepalive_requests 1000000;
    location / {
      proxy_pass http://nodes; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 300s;
    }
  }
}
`
}
