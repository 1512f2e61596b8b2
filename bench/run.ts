/** The bench: `npm run bench -- [words] [options]`; see {@link HELP}. */
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { bareLimits } from './bare-limit.ts'
import { startBareServer } from './bare-server.ts'
import { Databases } from './databases.ts'
import { chooseLoadClient, LOAD_CLIENTS, type LoadClient } from './load-client.ts'
import { type Peer, runningPeer } from './peer.ts'
import { plotOf } from './plot.ts'
import { startOnPostgres } from './postgres-peer.ts'
import { startPouchdbServer } from './pouchdb-server.ts'
import { circumstances, medians, type Result, table } from './report.ts'
import { builtHere, startSettee } from './settee.ts'
import { slowFsync } from './slow-fsync.ts'
import { FULL, QUICK, type Scale, type Trial } from './trial.ts'
import { alldocs } from './trials/alldocs.ts'
import { attach } from './trials/attach.ts'
import { bulkget } from './trials/bulkget.ts'
import { busy } from './trials/busy.ts'
import { changes } from './trials/changes.ts'
import { conflicts } from './trials/conflicts.ts'
import { crowd } from './trials/crowd.ts'
import { depth } from './trials/depth.ts'
import { curve, devices } from './trials/devices.ts'
import { diff } from './trials/diff.ts'
import { edit } from './trials/edit.ts'
import { fanout } from './trials/fanout.ts'
import { filter } from './trials/filter.ts'
import { firstsync } from './trials/firstsync.ts'
import { get } from './trials/get.ts'
import { huge } from './trials/huge.ts'
import { many } from './trials/many.ts'
import { memory } from './trials/memory.ts'
import { move } from './trials/move.ts'
import { push } from './trials/push.ts'
import { put } from './trials/put.ts'
import { recovery } from './trials/recovery.ts'
import { replicate } from './trials/replicate.ts'
import { rest } from './trials/rest.ts'
import { spread } from './trials/spread.ts'
import { standby } from './trials/standby.ts'
import { startup } from './trials/startup.ts'
import { tenants } from './trials/tenants.ts'
import { views } from './trials/views.ts'

const TRIALS: readonly Trial[] = [
  push,
  put,
  get,
  diff,
  bulkget,
  changes,
  alldocs,
  fanout,
  filter,
  attach,
  firstsync,
  replicate,
  memory,
  views,
  huge,
  depth,
  many,
  conflicts,
  tenants,
  busy,
  devices,
  curve,
  edit,
  rest,
  crowd,
  recovery,
  spread,
  startup,
  move,
  standby,
]

const HELP = `npm run bench -- [words] [options]

Words choose trials. Without words, all trials run except those with a star:
${TRIALS.map(({ name, about, isAlone }) => `  ${name.padEnd(10)}${isAlone ? '* ' : ''}${about}`).join('\n')}

--quick                smaller databases and fewer requests, for every change
--client c|autocannon  what sends the load; by default the client in C, or autocannon where there is no C compiler
--repeat N             run N rounds and print the medians
--slow-fsync MS        delay every fsync of the servers that the bench starts by MS milliseconds
--hosted               run settee in hosted mode
--store postgres       also measure settee on a PostgreSQL that the bench starts
--nodes N[,N...]       with this many nodes over it, nginx before several; 1 by default
--waits                show what sessions of PostgreSQL wait for, by a look every 20 ms
--beside FOLDER        also measure the settee that is built in the checkout FOLDER
--pouchdb-server       also measure pouchdb-server; the first use installs it into bench/.peers
--against NAME=URL     also measure another server; the URL has its credentials, and may end in #PID for CPU time and memory
--bare                 also measure bare limits: SQLite alone, and Fastify with a SQLite file
--no-settee            do not measure settee
--plot FILE            draw the times of the trial \`curve\` as an SVG`

interface Wanted {
  readonly trials: readonly Trial[]
  readonly scale: Scale
  /** undefined: the client in C where it can be compiled. */
  readonly client: LoadClient | undefined
  readonly rounds: number
  readonly slowness: number
  readonly against: readonly string[]
  readonly pouchdbServer: boolean
  /** The folder of another build; undefined: none. */
  readonly beside: string | undefined
  readonly settee: boolean
  readonly bare: boolean
  readonly hosted: boolean
  /** The numbers of nodes over PostgreSQL that are measured; empty: only files. */
  readonly nodes: readonly number[]
  readonly waits: boolean
  /** The file of the plot; undefined: none. */
  readonly plot: string | undefined
}

/** @returns null if the user wants the help @throws Error with a line for the user if the arguments are not valid */
function wanted(args: readonly string[]): Wanted | null {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      client: { type: 'string' },
      repeat: { type: 'string', default: '1' },
      'slow-fsync': { type: 'string', default: '0' },
      'pouchdb-server': { type: 'boolean', default: false },
      beside: { type: 'string' },
      against: { type: 'string', multiple: true, default: [] },
      'no-settee': { type: 'boolean', default: false },
      hosted: { type: 'boolean', default: false },
      store: { type: 'string' },
      nodes: { type: 'string', default: '1' },
      waits: { type: 'boolean', default: false },
      bare: { type: 'boolean', default: false },
      plot: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return null
  if (values.store !== undefined && values.store !== 'postgres') {
    throw new Error('--store can only be postgres.')
  }
  const client = LOAD_CLIENTS.find((name) => name === values.client)
  if (client === undefined && values.client !== undefined)
    throw new Error(`--client can only be ${LOAD_CLIENTS.join(' or ')}.`)
  const unknown = positionals.find((word) => !TRIALS.some(({ name }) => name === word))
  if (unknown !== undefined) throw new Error(`There is no trial "${unknown}".`)
  return {
    trials: TRIALS.filter(({ name, isAlone }) =>
      positionals.length === 0 ? !isAlone : positionals.includes(name),
    ),
    scale: values.quick ? QUICK : FULL,
    client,
    rounds: numberOf(values.repeat),
    slowness: numberOf(values['slow-fsync']),
    against: values.against,
    pouchdbServer: values['pouchdb-server'],
    beside: values.beside,
    settee: !values['no-settee'],
    bare: values.bare,
    hosted: values.hosted,
    nodes: values.store === undefined ? [] : values.nodes.split(',').map(numberOf),
    waits: values.waits,
    plot: values.plot,
  }
}

function numberOf(text: string): number {
  const value = Number(text)
  if (!(value >= 0)) throw new Error(`"${text}" is not a number.`)
  return value
}

function peerAgainst(text: string): Peer {
  const [, name, url] = /^([^=]+)=(https?:.+)$/.exec(text) ?? []
  if (name === undefined || url === undefined) throw new Error(`--against needs NAME=URL, not "${text}".`)
  return runningPeer(name, url)
}

/** Runs each trial on one peer after the other, in every second round in the opposite order. */
async function runTrials(
  peers: readonly Peer[],
  { trials, scale }: Wanted,
  isReversed: boolean,
): Promise<Result[]> {
  const benches = peers.map((peer) => new Databases(peer, scale))
  const results: Result[] = []
  try {
    for (const trial of trials) {
      for (const bench of isReversed ? benches.toReversed() : benches) {
        if (bench.peer.trials?.includes(trial.name) === false) continue
        const figures = await trial.run(bench)
        results.push(...figures.map((figure) => ({ ...figure, trial: trial.name, peer: bench.peer.name })))
      }
    }
  } finally {
    for (const bench of benches) await bench.clear()
  }
  return results
}

/** One round, on fresh servers. */
async function round(
  asked: Wanted,
  isReversed: boolean,
  onPeers: (peers: readonly Peer[]) => void,
): Promise<Result[]> {
  const env = await slowFsync(asked.slowness)
  const peers = asked.against.map(peerAgainst)
  try {
    if (asked.pouchdbServer) peers.unshift(await startPouchdbServer(env))
    if (asked.bare) peers.unshift(await startBareServer(env))
    const options = { env, isHosted: asked.hosted }
    const onPostgres = { ...options, showsWaits: asked.waits }
    const checkout = asked.settee || asked.nodes.length > 0 ? builtHere() : ''
    if (asked.nodes.length > 0 && asked.beside !== undefined) {
      for (const nodes of asked.nodes)
        peers.unshift(await startOnPostgres('beside', asked.beside, nodes, onPostgres))
    }
    for (const nodes of asked.nodes)
      peers.unshift(await startOnPostgres('settee', checkout, nodes, onPostgres))
    if (asked.nodes.length === 0 && asked.beside !== undefined)
      peers.unshift(await startSettee('beside', asked.beside, options))
    if (asked.settee) peers.unshift(await startSettee('settee', checkout, options))
    if (peers.length === 0) throw new Error('There is no server to measure.')
    onPeers(peers)
    const results = await runTrials(peers, asked, isReversed)
    if (asked.bare) results.push(...bareResults(asked, env))
    return results
  } finally {
    for (const peer of peers) await peer.close()
  }
}

function bareResults({ trials, scale }: Wanted, env: Readonly<Record<string, string>>): Result[] {
  return bareLimits(scale.notes, env)
    .filter(({ trial }) => trials.some(({ name }) => name === trial))
    .map((limit) => ({ ...limit, peer: 'bare limit' }))
}

async function main(args: readonly string[]): Promise<void> {
  const asked = wanted(args)
  if (asked === null) return console.log(HELP)
  const client = await chooseLoadClient(asked.client)
  const rounds: Result[][] = []
  for (let n = 0; n < Math.max(1, asked.rounds); n++) {
    const printHeader = (peers: readonly Peer[]) => n === 0 && console.log(circumstances(args, client, peers))
    rounds.push(await round(asked, n % 2 === 1, printHeader))
  }
  const results = medians(rounds)
  console.log(`\n${table(results)}`)
  if (asked.plot !== undefined) writeFileSync(asked.plot, plotOf(results))
}

await main(process.argv.slice(2)).catch((error: Error) => {
  console.error(error.message)
  process.exitCode = 1
})
