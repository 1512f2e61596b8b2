import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { makeVault } from '../../src/vaults/vault-answer.ts'
import type { VaultControl, VaultOrder } from '../../src/vaults/vault-control.ts'
import { planVault, type VaultWish } from '../../src/vaults/vault-plan.ts'

const STATE = {
  ...{
    documents: null,
    hasMembers: false,
    hasLiveSync: false,
    hasAccount: true,
    devices: [],
    admins: ['adm'],
  },
  ...{ listening: 'http://notes:5984/', url: 'http://notes:5984/', isHosted: false, folder: '/data' },
}

function planOf(account: string) {
  const wish: VaultWish = {
    ...{ vault: 'notes', app: 'livesync', account, host: undefined, device: 'phone' },
    ...{ mobileFilter: false, renew: false },
  }
  const given = async () => ({ passphrase: 'p', isNew: true })
  return planVault(wish, null, STATE, { given, ask: given })
}

t.test('a Setup URI that must not wait any longer is refused before a token is made for it', async (t) => {
  const begun: VaultOrder[] = []
  let end: (error: Error) => void = () => undefined
  const controls: VaultControl = {
    readVault: async () => STATE,
    addVault: (order) => {
      begun.push(order)
      return new Promise((_, reject) => {
        end = reject
      })
    },
  }
  const plan = await planOf('anna')
  const made = Array.from({ length: 18 }, () => makeVault(plan, controls).catch((error: unknown) => error))
  t.match(await made.at(-1), { code: 'unavailable' })
  t.equal(begun.length, 1)
  for (let ended = 0; ended < 17; ended++) {
    end(new CouchError('conflict', `${ended}`))
    t.match(await made[ended], { message: `${ended}` })
    await new Promise(setImmediate)
  }
  t.equal(begun.length, 17)
})
