import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { inFlight, medianOf, megabytes, percentileOf } from '../load.ts'
import { type OwnServer, startOn } from '../own-server.ts'
import type { Peer } from '../peer.ts'
import { DEVICES, Vault } from '../simulated-vault.ts'
import type { Figure, Scale, Trial } from '../trial.ts'
import { editAtRate } from './devices.ts'

const IN_FLIGHT = 8
/** The server lets memory go when it rests. */
const REST_MS = 10_000

export const crowd: Trial = {
  name: 'crowd',
  about:
    'many devices connected to a server of their own, which then restarts, so that all come back at once',
  isAlone: true,
  async run({ scale }) {
    const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
    const vaults = Array.from({ length: scale.crowd / DEVICES }, (_, n) => {
      return new Vault(`/vault-${n}`, addressOf(n))
    })
    let server: OwnServer | undefined
    try {
      server = await startOn(folder)
      const figures = await connect(server.peer, vaults, scale)
      for (const vault of vaults) vault.close()
      await server.end('SIGTERM')
      server = await startOn(folder)
      return [...figures, ...(await comeBack(server.peer, vaults, scale))]
    } finally {
      for (const vault of vaults) vault.close()
      await server?.end('SIGKILL')
      await rm(folder, { recursive: true, force: true })
    }
  },
}

/** Each household has its own address of the loopback network. */
function addressOf(vault: number): string {
  return `127.1.${Math.floor(vault / 250)}.${1 + (vault % 250)}`
}

async function connect(peer: Peer, vaults: readonly Vault[], scale: Scale): Promise<Figure[]> {
  const rest = await peer.memory()
  const made = vaults.map((_, n) => () => peer.call('PUT', `/vault-${n}`, 201))
  await inFlight(IN_FLIGHT, made)
  const seconds = await inFlight(
    IN_FLIGHT,
    vaults.map((vault) => () => vault.open(peer)),
  )
  await delay(REST_MS)
  const connected = await peer.memory()
  const times = await editAtRate(vaults, scale.editSeconds * scale.editsPerSecond, scale.editsPerSecond)
  await delay(REST_MS)
  const after = await peer.memory()
  return [
    { name: 'memory at rest', unit: 'MB', value: megabytes(rest ?? Number.NaN) },
    { name: 'connected', unit: 'devices/s', value: (vaults.length * DEVICES) / seconds },
    { name: 'memory with idle feeds', unit: 'MB', value: megabytes(connected ?? Number.NaN) },
    { name: 'to three bodies, median', unit: 'ms', value: medianOf(times) },
    { name: 'to three bodies, 99% within', unit: 'ms', value: percentileOf(times, 0.99) },
    { name: 'memory after the edits', unit: 'MB', value: megabytes(after ?? Number.NaN) },
  ]
}

/** All devices connect at once. In each vault, one brings an edit. A request that fails ends the trial. */
async function comeBack(peer: Peer, vaults: readonly Vault[], scale: Scale): Promise<Figure[]> {
  const since = performance.now()
  const edits = scale.editSeconds * scale.editsPerSecond
  const times = await Promise.all(
    vaults.map(async (vault, n) => {
      await vault.open(peer)
      await vault.edit(edits + n)
      return (performance.now() - since) / 1000
    }),
  )
  const peak = await peer.memory()
  await delay(REST_MS)
  return [
    { name: 'after a restart, half synced', unit: 's', value: medianOf(times) },
    { name: 'after a restart, all synced', unit: 's', value: Math.max(...times) },
    { name: 'memory then', unit: 'MB', value: megabytes(peak ?? Number.NaN) },
    { name: 'memory at rest then', unit: 'MB', value: megabytes((await peer.memory()) ?? Number.NaN) },
  ]
}
