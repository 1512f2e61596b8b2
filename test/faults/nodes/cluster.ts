/**
 * Four nodes over one PostgreSQL behind nginx, which sends requests to each in turn, and everything that may happen to
 * them: kills of nodes and of PostgreSQL, frozen nodes, and nodes that PostgreSQL's answers no longer reach.
 */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { type CuttableNetwork, cuttableNetwork } from '../../helpers/cuttable-network.ts'
import { nginxOver } from '../../helpers/node-balancers.ts'
import { type NodeProcess, startNode } from '../../helpers/node-processes.ts'
import { type PostgresServer, startPostgres } from '../../helpers/postgres-server.ts'

const NODES = 4
/** How long a node is frozen or cut off, in ms. */
const AWAY_MS = { from: 300, to: 2500 }
/** Attempts to start a node while PostgreSQL is gone. */
const STARTS = 50
/** Nodes must answer again this long after everything is there, in ms, without being started again. */
const RECOVERY_MS = 30_000

export type Fault =
  | 'node killed'
  | 'PostgreSQL killed'
  | 'cut off'
  | 'answers lost'
  | 'connections reset'
  | 'frozen'

/** A node with its own network to PostgreSQL. */
interface Member {
  readonly node: NodeProcess
  readonly network: CuttableNetwork
}

export class Cluster {
  /** Of nginx, without a slash at the end. */
  readonly url: string
  readonly postgres: PostgresServer
  readonly #members: readonly Member[]
  /** How often each fault has happened. */
  readonly count: Record<Fault, number> = {
    'node killed': 0,
    'PostgreSQL killed': 0,
    'cut off': 0,
    'answers lost': 0,
    'connections reset': 0,
    frozen: 0,
  }
  /** Who is killed, frozen or cut off now. */
  readonly #busy = new Set<Member | 'PostgreSQL'>()

  private constructor(url: string, postgres: PostgresServer, members: readonly Member[]) {
    this.url = url
    this.postgres = postgres
    this.#members = members
  }

  static async start(t: Test): Promise<Cluster> {
    const postgres = await startPostgres(t)
    const store = new URL(await postgres.createDatabase())
    const members = await Promise.all(
      Array.from({ length: NODES }, async (): Promise<Member> => {
        const network = await cuttableNetwork(t, postgres.port)
        const address = Object.assign(new URL(store), { port: String(network.port) })
        return { network, node: await startNode(t, { args: ['--store', address.href] }) }
      }),
    )
    const urls = members.map(({ node }) => node.url)
    const { url } = await nginxOver(t, urls, { hasAffinity: false, isPlain: true, failSeconds: 1 })
    return new Cluster(url, postgres, members)
  }

  get urls(): readonly string[] {
    return this.#members.map(({ node }) => node.url)
  }

  /** Does something to a node that is well, or to PostgreSQL, and undoes it. Resolves when that is done. */
  async suffer(fault: Fault): Promise<void> {
    if (fault === 'PostgreSQL killed') {
      await this.#alone('PostgreSQL', () => this.postgres.restart('immediate'))
    } else {
      const well = this.#members.filter((member) => !this.#busy.has(member))
      const member = well[randomInt(Math.max(well.length, 1))]
      if (member === undefined) return
      await this.#alone(member, () => FAULTS[fault](member))
    }
    this.count[fault] += 1
  }

  async #alone(who: Member | 'PostgreSQL', what: () => Promise<void>): Promise<void> {
    if (this.#busy.has(who)) return
    this.#busy.add(who)
    try {
      await what()
    } finally {
      this.#busy.delete(who)
    }
  }

  /** Waits until every node answers for a database, and nothing is under way in PostgreSQL. @throws Error after a while */
  async untilWell(database: string): Promise<void> {
    const end = performance.now() + RECOVERY_MS
    for (const { node } of this.#members) {
      for (;;) {
        const fault = await faultOf(node, database)
        if (fault === null) break
        if (performance.now() > end) {
          throw new Error(`${node.url} is not well again: ${fault}\n${(await node.log()).slice(-3000)}`)
        }
        await sleep(50)
      }
    }
    const active = `SELECT 1 FROM pg_stat_activity WHERE usename = 'settee' AND state <> 'idle' AND backend_type = 'client backend'`
    while ((await this.postgres.query(active)).length > 0) {
      if (performance.now() > end) throw new Error('PostgreSQL is never at rest')
      await sleep(20)
    }
  }
}

const pause = () => sleep(AWAY_MS.from + randomInt(AWAY_MS.to - AWAY_MS.from))

const FAULTS: Readonly<Record<Exclude<Fault, 'PostgreSQL killed'>, (member: Member) => Promise<void>>> = {
  'node killed': async ({ node }) => {
    await node.kill()
    // It waits for PostgreSQL, but ends if that is killed right afterwards. A service manager would start it again.
    const isUp = () =>
      node.start().then(
        () => true,
        (error: Error) => {
          if (/The node ended before it was up/.test(error.message)) return false
          throw error
        },
      )
    for (let tries = 0; !(await isUp()); tries++) {
      if (tries === STARTS) throw new Error(`A node did not start: ${await node.log()}`)
      await sleep(100)
    }
  },
  'cut off': async ({ network }) => {
    network.cut()
    await pause()
    network.mend()
  },
  'answers lost': async ({ network }) => {
    network.withholdAnswers()
    await pause()
    network.mend()
  },
  'connections reset': async ({ network }) => network.reset(),
  frozen: async ({ node }) => {
    node.freeze()
    await pause()
    node.thaw()
  },
}

/** @returns null if the node serves the database */
async function faultOf(node: NodeProcess, database: string): Promise<string | null> {
  try {
    const answer = await fetch(`${node.url}/${database}/_changes?limit=1`)
    const text = await answer.text()
    return answer.status === 200 ? null : text
  } catch (error) {
    return String(error)
  }
}
