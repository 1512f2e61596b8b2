/** Vaults over HTTP: a database for a note app, and the token of a device; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { isServerAdmin } from '../../auth/accounts.ts'
import { CouchError } from '../../core/errors.ts'
import { newPassphrase } from '../../vaults/livesync-setup.ts'
import { makeVault, vaultAnswer } from '../../vaults/vault-answer.ts'
import type { VaultControl } from '../../vaults/vault-control.ts'
import {
  APPS,
  type App,
  hostFault,
  type PassphraseSource,
  planVault,
  type VaultPlan,
  type VaultWish,
  vaultFault,
  vaultOf,
} from '../../vaults/vault-plan.ts'
import { reauthorize } from '../plugins/revocation.ts'
import { sendJson } from '../replies.ts'
import { type Path, type Schema, shape } from '../route-table.ts'
import { readSmallJson } from '../transport/body-reader.ts'
import { refuseTokens } from './token-routes.ts'

export const vaultRoutes: readonly Path[] = [
  {
    url: '/_settee/vaults',
    allow: 'POST',
    access: 'user',
    methods: { POST: { handler: addVault, json: true } },
  },
]

interface VaultBody {
  readonly vault: string
  readonly for: string
  readonly account?: string
  readonly device?: string
  readonly host?: string
  readonly passphrase?: string
  readonly renew?: boolean
  readonly mobile_filter?: boolean
}

function member(name: string, type: 'string' | 'boolean'): Schema {
  const wanted = type === 'string' ? 'a string' : 'true or false'
  return { type, refusal: ['bad_request', `\`${name}\` must be ${wanted}.`] }
}

const vaultBody = shape<VaultBody>({
  type: 'object',
  required: ['vault', 'for'],
  properties: {
    vault: member('vault', 'string'),
    for: member('for', 'string'),
    account: member('account', 'string'),
    device: member('device', 'string'),
    host: member('host', 'string'),
    passphrase: member('passphrase', 'string'),
    renew: member('renew', 'boolean'),
    mobile_filter: member('mobile_filter', 'boolean'),
  },
  refusal: ['bad_request', 'The body must be a JSON object with `vault`, its name, and `for`, the app.'],
})

const HOST_HINT = 'https://notes.example.com:443, for example'

/** The answer has the secrets of the device, which are shown only here. */
async function addVault(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  refuseTokens(request)
  const body = vaultBody(await readSmallJson(request))
  // The right may have been revoked while the body arrived.
  await reauthorize(request)
  const wish = wishOf(request, body)
  const controls = controlsOf(request)
  const plan = await planOf(wish, body.passphrase, controls)
  const report = await makeVault(plan, controls)
  reply.header('Cache-Control', 'no-store')
  return sendJson(reply, report.address === null ? 200 : 201, vaultAnswer(report, HOST_HINT))
}

/** @throws bad_request; forbidden for another account */
function wishOf({ user }: FastifyRequest, body: VaultBody): VaultWish {
  const { vault, host, device } = body
  const app = APPS.find((known): known is App => known === body.for)
  if (app === undefined) throw new CouchError('bad_request', `\`for\` must be one of: ${APPS.join(', ')}.`)
  const isAdmin = isServerAdmin(user)
  const account = body.account ?? (isAdmin ? vault : (user.name ?? ''))
  if (!isAdmin && account !== user.name)
    throw new CouchError('forbidden', 'Only server admins may name another account.')
  const fault = vaultFault(vault, app) ?? (host === undefined ? undefined : hostFault(host))
  if (fault !== undefined) throw new CouchError('bad_request', fault)
  if (account === '' || account.includes(':') || !account.isWellFormed())
    throw new CouchError(
      'bad_request',
      'The name of an account must be valid Unicode, not empty, and without a colon.',
    )
  const { renew = false, mobile_filter: mobileFilter = false } = body
  return { vault, app, host, account, device, mobileFilter, renew }
}

/** @throws not_found if this server makes no vaults */
function controlsOf({ user, server }: FastifyRequest): VaultControl {
  const { vaults, ownVaults } = server.services
  const controls = isServerAdmin(user) ? vaults : ownVaults?.(user)
  if (controls === undefined) throw new CouchError('not_found')
  return controls
}

async function planOf(
  wish: VaultWish,
  passphrase: string | undefined,
  controls: VaultControl,
): Promise<VaultPlan> {
  const state = await controls.readVault(vaultOf(wish))
  try {
    return await planVault(wish, null, state, passphrasesOf(passphrase))
  } catch (error) {
    // Faults of names that do not fit into an address.
    throw error instanceof CouchError ? error : new CouchError('bad_request', (error as Error).message)
  }
}

/** An account may have several vaults here, so a missing database is a new vault whatever devices the account has. */
function passphrasesOf(passphrase: string | undefined): PassphraseSource {
  return {
    given: async ({ documents }) => {
      if (passphrase === undefined)
        return documents === null ? { passphrase: newPassphrase(), isNew: true } : null
      if (passphrase.trim() !== '') return { passphrase, isNew: false }
      throw new CouchError('bad_request', 'The passphrase must not be empty.')
    },
    ask: async () => {
      throw new CouchError(
        'bad_request',
        'The vault may hold encrypted notes already. Give the passphrase of its other devices as `passphrase`, ' +
          'or one of your own if there are none yet.',
      )
    },
  }
}
