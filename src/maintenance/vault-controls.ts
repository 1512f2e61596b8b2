/** What the command line may ask about vaults, and what is needed to answer. */
import type { TokenMaker } from '../auth/token-maker.ts'
import type { Config } from '../config/config.ts'
import type { Databases } from '../threads/databases.ts'
import type { Listening } from './vault-place.ts'

export interface VaultQuery {
  readonly database: string
  readonly account: string
}

/** What is there of a vault. */
export interface VaultState {
  /** Documents that are not deleted; null: there is no such database. */
  readonly documents: number | null
  /** Whether its security object names anybody. */
  readonly hasMembers: boolean
  /** Whether Obsidian LiveSync has been at work there. */
  readonly hasLiveSync: boolean
  readonly hasAccount: boolean
  /** The names of the account's tokens. */
  readonly devices: readonly string[]
  /** Names of server admins, also of one that the environment makes at the next start. */
  readonly admins: readonly string[]
  /** Where the server listens; null: none runs. */
  readonly listening: string | null
  /** By which address it is reached where it listens, or would by its configuration, with a slash at the end. */
  readonly url: string
  readonly isHosted: boolean
  /** The data folder, absolute. */
  readonly folder: string
}

export interface VaultOrder extends VaultQuery {
  /** The token to make; null: the account's password is used instead. */
  readonly device: string | null
  /** Of a new account, and the one that an account must have that is there; null: nobody knows it. */
  readonly password: string | null
  /** Makes a new token in the place of one of this name. */
  readonly renew: boolean
  readonly mobileFilter: boolean
  /** Writes the keys of the configuration that Obsidian LiveSync looks at. */
  readonly liveSync: boolean
}

/** `differs`: there is another, which was left as it is; `closed`: it was open to everybody before. */
export type StepOutcome = 'made' | 'there' | 'changed' | 'differs' | 'closed'

export interface VaultOutcome {
  readonly account: StepOutcome
  readonly database: StepOutcome
  readonly security: StepOutcome
  /** null: not asked for. */
  readonly filter: StepOutcome | null
  /** `section/key` of what was changed in the configuration. */
  readonly settings: readonly string[]
  /** `section/key` of what is not as LiveSync's check of this account wants it, and was not this vault's to change. */
  readonly faults: readonly string[]
  /** null: not asked for. */
  readonly token: StepOutcome | null
  /** Of a token that was made. */
  readonly secret: string | null
}

export interface VaultControls {
  readVault(query: VaultQuery): Promise<VaultState>
  /**
   * Makes what is missing of a vault.
   * @throws before anything is made: conflict when the account has another password than the one given, or is a server
   *   admin, and in hosted mode when no server runs, or the database is another's; hosted_design for a mobile filter in
   *   hosted mode; illegal_database_name, database_name_too_long; as `TokenMaker.make`; unavailable when too many wait.
   *   Also what making the parts throws
   */
  addVault(order: VaultOrder): Promise<VaultOutcome>
}

export interface VaultServices {
  readonly config: Config
  readonly databases: Databases
  readonly tokenMaker: TokenMaker
  /** Makes a database, which in hosted mode the account owns. @throws as `Databases.create` */
  createDatabase(name: string, account: string): Promise<void>
  /** Names of server admins, sorted; also of one that the environment makes when the server starts. */
  adminNames(): Promise<readonly string[]>
  /** Null: no server runs. */
  listening(): Listening | null
  /** Whose a database is, in hosted mode. */
  ownerOf(database: string): string | undefined
}
