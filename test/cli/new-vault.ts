import type { VaultState } from '../../src/vaults/vault-control.ts'

/** A server after its first start: no vault, no account, no admin. */
export const NEW_VAULT: VaultState = {
  documents: null,
  hasMembers: false,
  hasLiveSync: false,
  hasAccount: false,
  devices: [],
  admins: [],
  listening: 'http://127.0.0.1:5984/',
  url: 'http://127.0.0.1:5984/',
  isHosted: false,
  folder: '/data',
}
