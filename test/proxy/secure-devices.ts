/** Devices that sync over TLS, by HTTP/1.1 as PouchDB does it in Node or by HTTP/2 as in a browser. */
import { type AgentOptions, Agent as HttpsAgent } from 'node:https'
import PouchDB from 'pouchdb'
import type { Test } from 'tap'
import { Agent, fetch as undiciFetch } from 'undici'
import { until } from '../helpers/until.ts'
import type { Device } from '../protocol/devices.ts'

interface Init {
  readonly headers?: Iterable<[string, string]>
  readonly [name: string]: unknown
}

type Fetch = (url: string, init?: Init) => Promise<unknown>

/** @param options `ca`, and what else TLS is to be told */
export function overHttp1(t: Pick<Test, 'teardown'>, options: AgentOptions): Fetch {
  const agent = new HttpsAgent({ keepAlive: true, ...options })
  t.teardown(() => agent.destroy())
  return (url, init) => PouchDB.fetch(url, { ...init, agent } as PouchDB.Options)
}

export function overHttp2(t: Pick<Test, 'teardown'>, ca: string): Fetch {
  const dispatcher = new Agent({ allowH2: true, connect: { ca } })
  t.teardown(() => dispatcher.destroy())
  return async (url, init = {}) => {
    const headers = Object.fromEntries(init.headers ?? [])
    const answer = await undiciFetch(url, { ...init, headers, dispatcher } as never)
    // As node-fetch has it, which PouchDB takes it for.
    return Object.assign(answer, { buffer: async () => Buffer.from(await answer.arrayBuffer()) })
  }
}

/** The database at an address, as a device sees it. */
export function secureRemote(address: string, fetch: Fetch): Device {
  return new PouchDB(address, { fetch } as PouchDB.Options)
}

/** Writes on both, in turns, and waits each time until the other has it. */
export async function editInTurns(
  devices: readonly [Device, Device],
  milliseconds: number,
  between: (round: number) => unknown = () => undefined,
): Promise<{ readonly edits: number; readonly slowest: number }> {
  const ends = performance.now() + milliseconds
  let edits = 0
  let slowest = 0
  for (let round = 0; edits < 4 || performance.now() < ends; round++) {
    await between(round)
    const [from, to] = round % 2 === 0 ? devices : [devices[1], devices[0]]
    const written = performance.now()
    const note = await from.get('note').catch(() => ({ _id: 'note' }))
    await from.put({ ...note, text: round })
    await from.put({ _id: `note-${round}`, text: round })
    const arrived = async (id: string) => (await to.get(id).catch(() => ({ text: null }))).text === round
    await until(`edit ${round} has arrived`, async () => (await arrived('note')) && arrived(`note-${round}`))
    slowest = Math.max(slowest, performance.now() - written)
    edits += 1
  }
  return { edits, slowest }
}
