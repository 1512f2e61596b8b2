/** Fairness between tenants of a hosted server: the saves of a quiet tenant while another tenant floods the server. */
import { setTimeout as pause } from 'node:timers/promises'
import { startFlood } from '../flood.ts'
import { inFlight, medianOf, percentileOf } from '../load.ts'
import type { Peer } from '../peer.ts'
import { makeNotes, newDocument } from '../seed.ts'
import type { Figure, Trial } from '../trial.ts'

const TENANTS = 200
const MAKING_AT_ONCE = 8
/** How often each of the other tenants saves a note: together 200 saves a second. */
const SAVES_EVERY_MS = 1_000
const QUIET_EVERY_MS = 20
const CONNECTIONS = 64

/** A tenant with a database of its own. */
interface Tenant {
  readonly path: string
  readonly authorization: string
}

export const tenants: Trial = {
  name: 'tenants',
  about: `--hosted: a quiet tenant's saves among ${TENANTS} tenants, before and during a flood by one of them`,
  isAlone: true,
  async run({ peer, scale }) {
    const all = await makeTenants(peer)
    const [quiet, flooder, ...others] = all as [Tenant, Tenant, ...Tenant[]]
    const note = newDocument(makeNotes(1)[0] as ReturnType<typeof makeNotes>[0])
    const murmur = murmurOf(peer, others, note)
    try {
      await savesOf(peer, quiet, note, 50)
      const before = await savesOf(peer, quiet, note, scale.fanouts)
      const flood = await startFlood({ ...flooder, origin: peer.origin, connections: CONNECTIONS })
      const meanwhile = await savesOf(peer, quiet, note, scale.fanouts)
      const answers = await flood.stop()
      const late = percentileOf(meanwhile, 0.99) / percentileOf(before, 0.99)
      return [
        ...figures('before', before),
        ...figures('in the flood', meanwhile),
        { name: '99%, as many times as before', unit: 'x', value: late },
        ...Object.entries(answers).map(([status, value]) => ({
          name: `the flood's answers ${status}`,
          unit: '',
          value,
        })),
      ]
    } finally {
      await murmur.stop()
    }
  },
}

function figures(when: string, times: readonly number[]): Figure[] {
  return [
    { name: `${when}, median`, unit: 'ms', value: medianOf(times) },
    { name: `${when}, 99% within`, unit: 'ms', value: percentileOf(times, 0.99) },
  ]
}

/** Accounts that the admin creates; each account creates its own database. */
async function makeTenants(peer: Peer): Promise<Tenant[]> {
  // Password hashing is not part of the measurement.
  await peer.call('PUT', '/_node/_local/_config/chttpd_auth/iterations', 200, '"1000"')
  const names = Array.from({ length: TENANTS }, (_, n) => `tenant${n}`)
  const made: Tenant[] = []
  const make = async (name: string) => {
    const account = { name, password: name, type: 'user', roles: [] }
    await peer.call('PUT', `/_users/org.couchdb.user:${name}`, 201, JSON.stringify(account))
    const authorization = `Basic ${Buffer.from(`${name}:${name}`).toString('base64')}`
    const path = `/notes-${name}`
    await callAs(peer, authorization, path)
    made.push({ path, authorization })
  }
  await inFlight(
    MAKING_AT_ONCE,
    names.map((name) => () => make(name)),
  )
  return made
}

async function callAs(peer: Peer, authorization: string, path: string, body?: string): Promise<void> {
  const answer = await fetch(peer.origin + path, {
    method: 'PUT',
    headers: { authorization, 'content-type': 'application/json' },
    body: body ?? null,
  })
  const text = await answer.text()
  if (answer.status !== 201) throw new Error(`PUT ${path} is ${answer.status}: ${text.slice(0, 300)}`)
}

/** Saves at a fixed interval, one at a time. @returns the milliseconds of each save */
async function savesOf(
  peer: Peer,
  { path, authorization }: Tenant,
  note: string,
  count: number,
): Promise<number[]> {
  const times: number[] = []
  for (let n = 0; n < count; n++) {
    const since = performance.now()
    await callAs(peer, authorization, `${path}/${crypto.randomUUID()}`, note)
    times.push(performance.now() - since)
    await pause(Math.max(0, QUIET_EVERY_MS - (performance.now() - since)))
  }
  return times
}

/** The load of the other tenants. */
function murmurOf(peer: Peer, many: readonly Tenant[], note: string): { stop(): Promise<void> } {
  let isOver = false
  const murmur = async (tenant: Tenant, n: number) => {
    await pause((n / many.length) * SAVES_EVERY_MS)
    while (!isOver) {
      await callAs(peer, tenant.authorization, `${tenant.path}/${crypto.randomUUID()}`, note)
      await pause(SAVES_EVERY_MS)
    }
  }
  const running = Promise.all(many.map(murmur))
  return {
    stop: async () => {
      isOver = true
      await running
    },
  }
}
