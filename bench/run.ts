/** The bench: `npm run bench -- [words] [--quick] [--against NAME=URL]`; see {@link HELP}. */
import { randomUUID } from 'node:crypto'
import { parseArgs } from 'node:util'
import { type Peer, runningPeer, startSettee } from './peer.ts'
import { circumstances, type Result, table } from './report.ts'
import { makeNotes } from './seed.ts'
import { type Bench, FULL, QUICK, type Scale, type Seeded, type Trial } from './trial.ts'
import { alldocs } from './trials/alldocs.ts'
import { changes } from './trials/changes.ts'
import { diff } from './trials/diff.ts'
import { get } from './trials/get.ts'
import { push, pushNotes } from './trials/push.ts'
import { put } from './trials/put.ts'

const TRIALS: readonly Trial[] = [push, put, get, diff, changes, alldocs]

const HELP = `npm run bench -- [words] [--quick] [--against NAME=URL]...

Words choose trials; without any, all are run:
${TRIALS.map(({ name, about }) => `  ${name.padEnd(9)}${about}`).join('\n')}

--quick                smaller, for every change
--against NAME=URL     beside settee another server, with its credentials in the URL
--only-against         without settee`

interface Wanted {
  readonly trials: readonly Trial[]
  readonly scale: Scale
  readonly against: readonly string[]
  readonly settee: boolean
}

/** @throws with a line for whoever has typed something that is not understood; null: the help is wanted */
function wanted(args: readonly string[]): Wanted | null {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      against: { type: 'string', multiple: true, default: [] },
      'only-against': { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return null
  if (values['only-against'] && values.against.length === 0) throw new Error('There is nobody to measure.')
  const unknown = positionals.find((word) => !TRIALS.some(({ name }) => name === word))
  if (unknown !== undefined) throw new Error(`There is no trial "${unknown}".`)
  return {
    trials: TRIALS.filter(({ name }) => positionals.length === 0 || positionals.includes(name)),
    scale: values.quick ? QUICK : FULL,
    against: values.against,
    settee: !values['only-against'],
  }
}

function peerAgainst(text: string): Peer {
  const [, name, url] = /^([^=]+)=(https?:.+)$/.exec(text) ?? []
  if (name === undefined || url === undefined) throw new Error(`--against takes NAME=URL, not "${text}".`)
  return runningPeer(name, url)
}

/** A peer's databases for one run of the bench. */
class Databases implements Bench {
  readonly peer: Peer
  readonly scale: Scale
  readonly #made: string[] = []
  #seeded: Promise<Seeded> | undefined

  constructor(peer: Peer, scale: Scale) {
    this.peer = peer
    this.scale = scale
  }

  readonly emptyDatabase = async (): Promise<string> => {
    const path = `/bench-${randomUUID()}`
    await this.peer.call('PUT', path, 201)
    this.#made.push(path)
    return path
  }

  readonly seeded = (): Promise<Seeded> => {
    this.#seeded ??= this.#seed()
    return this.#seeded
  }

  async #seed(): Promise<Seeded> {
    const [path, notes] = [await this.emptyDatabase(), makeNotes(this.scale.notes)]
    await pushNotes(this.peer, path, notes)
    return { path, notes }
  }

  async clear(): Promise<void> {
    for (const path of this.#made) await this.peer.call('DELETE', path, 200)
  }
}

async function runTrials(peers: readonly Peer[], { trials, scale }: Wanted): Promise<Result[]> {
  const benches = peers.map((peer) => new Databases(peer, scale))
  const results: Result[] = []
  try {
    for (const trial of trials) {
      for (const bench of benches) {
        const figures = await trial.run(bench)
        results.push(...figures.map((figure) => ({ ...figure, trial: trial.name, peer: bench.peer.name })))
      }
    }
  } finally {
    for (const bench of benches) await bench.clear()
  }
  return results
}

async function main(args: readonly string[]): Promise<void> {
  const asked = wanted(args)
  if (asked === null) return console.log(HELP)
  const peers = asked.against.map(peerAgainst)
  try {
    if (asked.settee) peers.unshift(await startSettee())
    console.log(circumstances(args, peers))
    console.log(`\n${table(await runTrials(peers, asked), peers)}`)
  } finally {
    for (const peer of peers) await peer.close()
  }
}

await main(process.argv.slice(2)).catch((error: Error) => {
  console.error(error.message)
  process.exitCode = 1
})
