import { setTimeout as delay } from 'node:timers/promises'
import { medianOf, withCpu } from '../load.ts'
import { DEVICES } from '../simulated-vault.ts'
import type { Figure, Trial } from '../trial.ts'
import { editAtRate, openVaults } from './devices.ts'

const FRESH_PER_SECOND = 40
const WARM_PER_SECOND = 100
const REST_MS = 2_000

/** As `devices`, for the CPU time of an edit alone. A fresh server has not compiled its code yet. */
export const edit: Trial = {
  name: 'edit',
  about: `the CPU of an edit with ${DEVICES} devices per database: ${FRESH_PER_SECOND} edits/s on a fresh server, then ${WARM_PER_SECOND} on a warm one`,
  isAlone: true,
  async run(bench) {
    const { peer, scale } = bench
    const vaults = await openVaults(bench)
    const measured = async (name: string, perSecond: number): Promise<Figure[]> => {
      await delay(REST_MS)
      const edits = perSecond * scale.editSeconds
      const { result, cpu } = await withCpu(peer, edits, 'edit', () => editAtRate(vaults, edits, perSecond))
      const figures = [{ name: 'to three bodies, median', unit: 'ms', value: medianOf(result) }, ...cpu]
      return figures.map((figure) => ({ ...figure, name: `${name}, ${figure.name}` }))
    }
    try {
      const fresh = await measured('fresh', FRESH_PER_SECOND)
      await editAtRate(vaults, WARM_PER_SECOND * scale.editSeconds, WARM_PER_SECOND)
      return [...fresh, ...(await measured('warm', WARM_PER_SECOND))]
    } finally {
      for (const vault of vaults) vault.close()
    }
  },
}
