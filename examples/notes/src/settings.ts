/** The settings of a device. Each is stored when the user changes it; the Address only by Apply. */
import { type AddressResult, parseAddress } from '../../../src/core/address.ts'
import { Store, type Watched } from './store.ts'

/** The ways to sync, in the order in which Preferences lists them. */
export const SYNC_MODES = ['off', 'hosted', 'advanced'] as const
export type SyncMode = (typeof SYNC_MODES)[number]
export const DEFAULT_MODE: SyncMode = 'hosted'

export const MODE_NAMES: Readonly<Record<SyncMode, string>> = {
  off: "Don't Sync",
  hosted: 'Hosted Sync Server',
  advanced: 'Advanced (compatible database)',
}

/** An account on the hosted server, as this device is signed in to it. */
export interface HostedAccount {
  /** `scheme://host:port` of the build at sign-in: no other server gets the token. */
  readonly server: string
  readonly name: string
  /** The account's own database. */
  readonly database: string
  /** Used in place of the password, which is not stored. */
  readonly token: string
  readonly tokenId: string
}

export interface Settings {
  readonly mode: SyncMode
  /** The Address that the user applied, with its password; empty: none yet. */
  readonly address: string
  /** Whether this device leaves pictures out. */
  readonly isMobile: boolean
  /** Whether sync events are logged. */
  readonly isLogging: boolean
  readonly account: HostedAccount | null
  /** Whether the user has chosen a mode; until then, the default is no wish of the user. */
  readonly isModeChosen: boolean
  /** Whether text and formatted note are shown side by side where there is room. */
  readonly isSplit: boolean
  /** Whether single keys are shortcuts. */
  readonly hasShortcuts: boolean
}

export const DEFAULTS: Settings = {
  mode: DEFAULT_MODE,
  address: '',
  isMobile: false,
  isLogging: false,
  account: null,
  isModeChosen: false,
  isSplit: false,
  hasShortcuts: true,
}

/** The part of localStorage that is used. */
export interface Shelf {
  getItem(key: string): string | null
  setItem(key: string, value: string): void
  removeItem(key: string): void
}

export const SETTINGS_KEY = 'notes.settings'

/** The settings of this device. */
export class SettingsKeeper implements Watched<Settings> {
  readonly #shelf: Shelf
  readonly #store: Store<Settings>

  /** @param shelf where they are stored; a value that cannot be read counts as not set */
  constructor(shelf: Shelf) {
    this.#shelf = shelf
    this.#store = new Store(readSettings(shelf.getItem(SETTINGS_KEY)))
  }

  get value(): Settings {
    return this.#store.value
  }

  subscribe(listener: (settings: Settings) => void): () => void {
    return this.#store.subscribe(listener)
  }

  chooseMode(mode: SyncMode): void {
    this.#keep({ mode, isModeChosen: true })
  }

  /** @returns its faults; with a fault, the previous Address stays */
  applyAddress(text: string): AddressResult {
    const result = parseAddress(text.trim(), { mobile: this.value.isMobile })
    if (result.ok) this.#keep({ address: text.trim() })
    return result
  }

  setMobile(isMobile: boolean): void {
    this.#keep({ isMobile })
  }

  setLogging(isLogging: boolean): void {
    this.#keep({ isLogging })
  }

  setSplit(isSplit: boolean): void {
    if (isSplit !== this.value.isSplit) this.#keep({ isSplit })
  }

  setShortcuts(hasShortcuts: boolean): void {
    this.#keep({ hasShortcuts })
  }

  signIn(account: HostedAccount): void {
    this.#keep({ account })
  }

  signOut(): void {
    this.#keep({ account: null })
  }

  /** Reads the settings again after another window of the app has changed them. */
  reread(): void {
    const next = readSettings(this.#shelf.getItem(SETTINGS_KEY))
    if (JSON.stringify(next) !== JSON.stringify(this.value)) this.#store.set(next)
  }

  #keep(members: Partial<Settings>): void {
    const next = { ...this.value, ...members }
    try {
      // Stored first, because a listener may read it there.
      this.#shelf.setItem(SETTINGS_KEY, JSON.stringify(next))
    } catch {
      // The storage is full. The setting still holds as long as the page is open.
    }
    this.#store.set(next)
  }
}

/** @param text the stored text; each invalid member gets its default */
export function readSettings(text: string | null): Settings {
  const kept = membersOf(text)
  return {
    mode: SYNC_MODES.find((mode) => mode === kept.mode) ?? DEFAULTS.mode,
    address: typeof kept.address === 'string' ? kept.address : DEFAULTS.address,
    isMobile: kept.isMobile === true,
    isLogging: kept.isLogging === true,
    account: isAccount(kept.account) ? kept.account : null,
    // A mode that an earlier version stored, or a sign-in, was a choice as well.
    isModeChosen: kept.isModeChosen === true || (kept.isModeChosen === undefined && wasChosen(kept)),
    isSplit: kept.isSplit === true,
    hasShortcuts: kept.hasShortcuts !== false,
  }
}

function wasChosen({ mode, account }: Readonly<Record<string, unknown>>): boolean {
  return isAccount(account) || SYNC_MODES.some((each) => each === mode && each !== DEFAULTS.mode)
}

function membersOf(text: string | null): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text ?? '{}')
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}

function isAccount(value: unknown): value is HostedAccount {
  const names = ['server', 'name', 'database', 'token', 'tokenId']
  if (typeof value !== 'object' || value === null) return false
  return names.every((name) => typeof (value as Record<string, unknown>)[name] === 'string')
}
