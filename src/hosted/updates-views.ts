/**
 * `_db_updates` for each account: only its own databases. The sequence tokens are encrypted, since the number in them
 * counts the updates of all databases of the server.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { UpdatesView } from '../changes/db-updates.ts'
import { atMost } from '../core/cache.ts'
import type { WatchedRecords } from '../storage/records.ts'
import { readRecord } from '../storage/records.ts'
import type { Databases } from '../threads/databases.ts'
import type { Owners } from './owners.ts'
import type { TenantDatabases } from './tenant-databases.ts'

const KIND = 'secret'
const KEY = 'db_updates'
const SECRET_BYTES = 32
/** Views that are remembered, so that an account's feeds share their pages. */
const MAX_VIEWS = 10_000
/** Bytes of a number and of an epoch's id (storage/sequence.ts): together one block of AES. */
const SEQ_BYTES = 7
const EPOCH_BYTES = 9
/** A token begins with a number (protocol.md 5.1); here always 1. */
const SEALED = /^1-([0-9A-Za-z_-]{22})$/

interface UpdatesViewsOptions {
  readonly records: WatchedRecords
  readonly owners: Owners
  readonly databases: Pick<Databases, 'has'>
  readonly tenantDatabases: Pick<TenantDatabases, 'whenIdle'>
}

export class UpdatesViews {
  readonly #secret: Buffer
  readonly #options: UpdatesViewsOptions
  /** By account. A feed keeps its view when the view is forgotten here. */
  readonly #views = new LRUCache<string, UpdatesView>(atMost(MAX_VIEWS))
  #made = 0

  private constructor(secret: Buffer, options: UpdatesViewsOptions) {
    this.#secret = secret
    this.#options = options
  }

  /** Reads the secret that encrypts tokens, or makes it. Nodes that start together agree on one. */
  static async open(options: UpdatesViewsOptions): Promise<UpdatesViews> {
    const { records } = options
    const value = randomBytes(SECRET_BYTES).toString('hex')
    const isMade = await records.writeRecords([{ kind: KIND, key: KEY, value, expected: null }])
    const secret = isMade ? value : ((await readRecord(records, KIND, KEY)) as string)
    return new UpdatesViews(Buffer.from(secret, 'hex'), options)
  }

  /** The view of an account. */
  of(account: string): UpdatesView {
    let view = this.#views.get(account)
    if (view === undefined) {
      this.#made += 1
      view = this.#make(account, -this.#made)
      this.#views.set(account, view)
    }
    return view
  }

  #make(account: string, incarnation: number): UpdatesView {
    const key = createHmac('sha256', this.#secret).update(account).digest().subarray(0, 16)
    return {
      incarnation,
      security: { admins: { names: [] }, members: { names: [account] } },
      names: () => this.#namesOf(account),
      encode: (token) => sealed(key, token),
      decode: (token) => unsealed(key, token),
    }
  }

  /** A former name may belong to another account by now. */
  async #namesOf(account: string): Promise<string[]> {
    const { owners, databases, tenantDatabases } = this.#options
    await tenantDatabases.whenIdle(account)
    const { own, former } = await owners.namesInUpdates(account)
    const areThere = await Promise.all(former.map((name) => databases.has(name)))
    return [...own, ...former.filter((_, at) => !areThere[at])]
  }
}

/** @param token `N-epoch` */
function sealed(key: Buffer, token: string): string {
  const dash = token.indexOf('-')
  const block = Buffer.alloc(SEQ_BYTES + EPOCH_BYTES)
  const seq = Buffer.alloc(8)
  seq.writeBigUInt64BE(BigInt(token.slice(0, dash)))
  seq.copy(block, 0, 8 - SEQ_BYTES)
  block.write(token.slice(dash + 1), SEQ_BYTES, 'base64url')
  const cipher = createCipheriv('aes-128-ecb', key, null).setAutoPadding(false)
  return `1-${Buffer.concat([cipher.update(block), cipher.final()]).toString('base64url')}`
}

/** A token that was encrypted with another key yields an unknown epoch. */
function unsealed(key: Buffer, token: string): string | null {
  const encoded = SEALED.exec(token.replace(/^"(.*)"$/, '$1'))?.[1]
  if (encoded === undefined) return null
  const cipher = createDecipheriv('aes-128-ecb', key, null).setAutoPadding(false)
  const block = Buffer.concat([cipher.update(Buffer.from(encoded, 'base64url')), cipher.final()])
  const seq = Buffer.concat([Buffer.alloc(8 - SEQ_BYTES), block.subarray(0, SEQ_BYTES)]).readBigUInt64BE()
  return `${seq}-${block.subarray(SEQ_BYTES).toString('base64url')}`
}
