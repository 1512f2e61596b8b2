import { setTimeout as delay } from 'node:timers/promises'
import { inFlight, medianOf, megabytes, percentileOf, withCpu } from '../load.ts'
import { mulberry32 } from '../seed.ts'
import { DEVICES, Vault } from '../simulated-vault.ts'
import type { Bench, Figure, Trial } from '../trial.ts'

const OPENING = 50
const REST_MS = 2_000
/** How long each rate of the curve lasts. */
const CURVE_SECONDS = 10

export const devices: Trial = {
  name: 'devices',
  about: `${DEVICES} devices per database with live feeds; one saves, the others fetch the body, all write checkpoints`,
  isAlone: true,
  async run(bench) {
    const { peer, scale } = bench
    const vaults = await openVaults(bench)
    try {
      await delay(REST_MS)
      const idle = await peer.memory()
      const edits = scale.editsPerSecond * scale.editSeconds
      const { result: times, cpu } = await withCpu(peer, edits, 'edit', () =>
        editAtRate(vaults, edits, scale.editsPerSecond),
      )
      const after = await peer.memory()
      return [
        { name: 'to three bodies, median', unit: 'ms', value: medianOf(times) },
        { name: 'to three bodies, 99% within', unit: 'ms', value: percentileOf(times, 0.99) },
        ...cpu,
        ...(idle === null ? [] : [{ name: 'with idle feeds', unit: 'MB', value: megabytes(idle) }]),
        ...(after === null ? [] : [{ name: 'after the edits', unit: 'MB', value: megabytes(after) }]),
      ]
    } finally {
      for (const vault of vaults) vault.close()
    }
  },
}

/** The same at rising rates, for a plot (`--plot`). */
export const curve: Trial = {
  name: 'curve',
  about: 'the devices at rising rates of edits',
  isAlone: true,
  async run(bench) {
    const { peer, scale } = bench
    const vaults = await openVaults(bench)
    try {
      // The first edits warm up the code.
      await editAtRate(vaults, scale.editsPerSecond * 5, scale.editsPerSecond)
      const figures: Figure[] = []
      for (const at of scale.editRates) {
        const edits = at * CURVE_SECONDS
        const { result: times, cpu } = await withCpu(peer, edits, 'edit', () => editAtRate(vaults, edits, at))
        figures.push(
          { name: 'median', unit: 'ms', value: medianOf(times), at },
          { name: '99% within', unit: 'ms', value: percentileOf(times, 0.99), at },
          ...cpu.map((figure) => ({ ...figure, at })),
        )
        await delay(REST_MS)
      }
      return figures
    } finally {
      for (const vault of vaults) vault.close()
    }
  },
}

/** Opens the devices of `scale`, four to a database, with live feeds. */
export async function openVaults({ peer, scale, emptyDatabase }: Bench): Promise<Vault[]> {
  const vaults: Vault[] = []
  const jobs = Array.from({ length: scale.devices / DEVICES }, () => async () => {
    const vault = new Vault(await emptyDatabase())
    vaults.push(vault)
    await vault.open(peer)
  })
  await inFlight(OPENING / DEVICES, jobs)
  return vaults
}

/**
 * Saves edits at a fixed rate, whether earlier ones have arrived or not. A few databases get most of them (Zipf's law).
 * @returns the time of each edit from its save to the third body, in milliseconds
 * @throws when a call fails
 */
export async function editAtRate(
  vaults: readonly Vault[],
  edits: number,
  perSecond: number,
): Promise<number[]> {
  const random = mulberry32(1)
  const arrivals: Promise<number>[] = []
  const since = performance.now()
  while (arrivals.length < edits) {
    const due = Math.min(edits, Math.floor(((performance.now() - since) / 1000) * perSecond))
    while (arrivals.length < due) {
      const at = Math.min(vaults.length - 1, Math.floor(vaults.length ** random() - 1))
      arrivals.push((vaults[at] as Vault).edit(arrivals.length))
    }
    await delay(2)
  }
  return Promise.all(arrivals)
}
