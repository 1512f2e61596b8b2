import { CouchError } from '../core/errors.ts'
import { USERS_DATABASE } from '../core/ids.ts'
import { KNOWN_KEYS, knownKey } from './defaults.ts'
import { agreeOnMode, problemOfUsersDatabase, requireUsersDatabase } from './hosted-mode.ts'
import { deleteInText, differences, type Sections, setInText } from './ini-file.ts'
import { LocalIniFile } from './local-ini.ts'
import { type ConfigOptions, fixedIn, localIniIn, readSources } from './read-sources.ts'
import { isSharedByNodes, type SettingsRead, type SharedSettings } from './shared-settings.ts'
import { type Origin, type Origins, originKey, put } from './sources.ts'
import { problemOfProxyAuth, requireSafeProxyAuth } from './value-rules.ts'
import { checkNames, checkSetting, newerSection, type Own, ownIn, valueInEffect } from './values.ts'

export interface WriteOptions {
  /** false: in memory only, until the next start or {@link Config.reload} (`X-Couch-Persist: false`). Default true. */
  readonly persist?: boolean
  /**
   * true: a write of the server itself, such as a hashed password. After a reload the environment and the command line
   * still override the key. They do not override keys that users have written to local.ini. Default false.
   */
  readonly isOwn?: boolean
  /** true: a value that the key has already stays, and counts for all nodes; {@link Config.set} returns it. Default false. */
  readonly ifUnset?: boolean
  /**
   * Called in the turn of the write, after all earlier writes: the caller may have lost the right to it since. It throws
   * to refuse the write, and must not write to this configuration. It is called again if another node was faster.
   */
  readonly precondition?: () => void | Promise<void>
}

/** A reloaded configuration that is not in effect yet. */
export interface FreshConfig {
  /** The values of the sources, without the defaults. The callee may change them. */
  readonly sections: Sections
  /** The text of local.ini. */
  readonly text: string
  readonly env: NodeJS.ProcessEnv
}

/** How often a write is decided again because another node was faster. */
const MAX_TRIES = 10

/** Keys that are listed with a default, by section. */
const LISTED = Map.groupBy(
  KNOWN_KEYS.filter(({ value }) => value !== null),
  ({ section }) => section,
)

/** @param value undefined if the key is no longer set */
type ConfigListener = (section: string, key: string, value: string | undefined) => void

/**
 * Reads the configuration: defaults < local.ini < environment < command line (architecture.md, "Configuration").
 * @throws StartError
 */
export async function openConfig(options: ConfigOptions): Promise<Config> {
  const { sections, origins } = await readSources(options, () => false, null)
  const config = new Config(options, sections, origins)
  requireUsersDatabase(config.isHosted, config.usersDatabase)
  return config
}

/**
 * CouchDB's configuration: sections of keys with string values, changed while the server runs. A change takes
 * effect at once, whatever the environment and the command line said at the start.
 */
export class Config {
  #isHosted: boolean
  readonly #sources: ConfigOptions
  /** Values that are shown as they are, whatever local.ini says. */
  readonly #fixed: Sections
  readonly #listeners = new Set<ConfigListener>()
  /** Keys that were written while the server runs, for which only local.ini counts; see {@link WriteOptions}. */
  readonly #overruled = new Set<string>()
  /** Values of the sources and later writes, without the defaults. */
  #current: Sections
  #origins: Origins
  /** What was read since the last change, by section and key: of keys that have a value or that settee knows. */
  readonly #read = new Map<string, Map<string, string | undefined>>()
  #lastWrite: Promise<unknown> = Promise.resolve()
  readonly #local: LocalIniFile
  #shared: {
    readonly store: SharedSettings
    read: SettingsRead
    onFault(fault: unknown): void
  } | null = null

  /** Use {@link openConfig}. */
  constructor(sources: ConfigOptions, sections: Sections, origins: Origins) {
    this.#local = new LocalIniFile(localIniIn(sources.dataDir))
    this.#sources = sources
    this.#current = sections
    this.#origins = origins
    this.#fixed = sections.get('settee')?.get('store') ? new Map() : fixedIn(sources.dataDir)
    this.#isHosted = this.get('settee', 'mode') === 'hosted'
  }

  /** Hosted mode (docs/hosted.md), as at the start; beside other nodes, once {@link share} has resolved. */
  get isHosted(): boolean {
    return this.#isHosted
  }

  /** The database of accounts: `chttpd_auth/authentication_db`. */
  get usersDatabase(): string {
    return this.get('chttpd_auth', 'authentication_db') || USERS_DATABASE
  }

  /** The path of local.ini. */
  get path(): string {
    return this.#local.path
  }

  /**
   * The value in effect: the key's own, that of the older section that CouchDB reads beside this one, or the default.
   * @returns the empty string for a key that is set to nothing
   */
  get(section: string, key: string): string | undefined {
    const read = this.#read.get(section)
    const cached = read?.get(key)
    if (cached !== undefined || read?.has(key)) return cached
    const value = this.#fixed.get(section)?.get(key) ?? valueInEffect(ownIn(this.#current), section, key)
    // A client may ask for any key.
    if (value !== undefined || knownKey(section, key) !== undefined) {
      this.#read.set(section, (read ?? new Map<string, string | undefined>()).set(key, value))
    }
    return value
  }

  /** Whether a key has a value of its own, in local.ini, the environment, the command line or a later write. */
  isSet(section: string, key: string): boolean {
    return this.#current.get(section)?.has(key) ?? false
  }

  /** @returns where the key's own value comes from; null if it has none */
  origin(section: string, key: string): Origin | null {
    if (!this.isSet(section, key)) return null
    return this.#origins.get(originKey(section, key)) ?? { from: 'local.ini', name: null }
  }

  /** @returns the names of all sections with a key that is set, or has a default */
  sections(): string[] {
    return [...new Set([...LISTED.keys(), ...this.#current.keys()])]
  }

  /** @returns how many keys of the section are set, without defaults */
  keyCount(section: string): number {
    return this.#current.get(section)?.size ?? 0
  }

  /** @returns the section's keys and the values in effect, empty for an unknown one; a copy */
  section(name: string): Record<string, string> {
    const keys = new Set([
      ...(LISTED.get(name) ?? []).map(({ key }) => key),
      ...(this.#fixed.get(name)?.keys() ?? []),
      ...(this.#current.get(name)?.keys() ?? []),
    ])
    // fromEntries makes own properties, also of `__proto__`.
    return Object.fromEntries([...keys].map((key) => [key, this.get(name, key) ?? '']))
  }

  /** @returns every section that has a key, as `GET /_node/_local/_config` lists them; a copy */
  all(): Record<string, Record<string, string>> {
    const sections = this.sections().map((name) => [name, this.section(name)] as const)
    return Object.fromEntries(sections.filter(([, keys]) => Object.keys(keys).length > 0))
  }

  /**
   * Sets a key, also in local.ini unless `persist` is false. Writes run one after the other. A password in section
   * `admins` must be a hash; `setAdmin` of auth/admins.ts makes it.
   * @param value is trimmed (protocol.md 12.1)
   * @returns the old value, `""` if there was none
   * @throws bad_request, config_read_only; insufficient_storage or internal_server_error if local.ini cannot be written,
   *   and then nothing changes; what `precondition` throws
   */
  async set(section: string, key: string, value: string, options: WriteOptions = {}): Promise<string> {
    const trimmed = value.trim()
    checkSetting(section, key, trimmed)
    if (section === 'admins' && !trimmed.startsWith('-')) throw new Error('Use setAdmin to set an admin.')
    return this.#inTurn(() => this.#write(section, key, trimmed, options))
  }

  /**
   * Removes a key, also from local.ini unless `persist` is false. A key with a default gets its default.
   * @returns the old value
   * @throws unknown_config_value if the key is not set; as {@link set}
   */
  async delete(section: string, key: string, options: WriteOptions = {}): Promise<string> {
    checkNames(section, key)
    return this.#inTurn(() => this.#write(section, key, null, options))
  }

  /**
   * Reloads the configuration (protocol.md 12.1). Changes by hand take effect, keys that local.ini no longer has get their
   * defaults, and values in memory only are gone. The environment and the command line override local.ini as at the start,
   * except for keys that were written while the server ran.
   * @param look gets the new values before they take effect. If it throws, nothing changes. It must not write to this
   *   configuration, since such a write would wait for the reload.
   * @returns the keys that have changed, as `section/key`
   * @throws StartError if a source has an error; what `look` throws. Then nothing changes
   */
  reload(look: (fresh: FreshConfig) => Promise<void>): Promise<string[]> {
    return this.#inTurn(async () => {
      await this.#refresh()
      return this.#readAgain(this.#shared?.read ?? null, look)
    })
  }

  /**
   * From now on the shared settings are not in local.ini, but where all nodes see them. Those that local.ini has are
   * refused.
   * @param isServer false: for a command, which decides nothing for the nodes
   * @param onFault called if a change of another node could not be read, or must not take effect on this node
   * @returns a function that ends this
   * @throws StartError; as `SharedSettings.read`
   */
  async share(store: SharedSettings, isServer: boolean, onFault: (e: unknown) => void): Promise<() => void> {
    await this.#inTurn(async () => {
      const { isHosted, read } = await agreeOnMode(store, { isHosted: this.isHosted, isServer })
      this.#isHosted = isHosted
      requireUsersDatabase(isHosted, this.usersDatabase)
      await this.#readAgain(read, async () => undefined)
      this.#shared = { store, read, onFault }
    })
    return store.follow(() => this.#inTurn(() => this.#refresh()), onFault)
  }

  /**
   * Stores a key only; the value in effect stays.
   * @throws as {@link set}
   */
  async writeBack(section: string, key: string, value: string): Promise<void> {
    checkSetting(section, key, value)
    return this.#inTurn(async () => {
      for (let tries = 1; !(await this.#store(section, key, value)); tries++) await this.#readBefore(tries)
    })
  }

  /** @returns whether the key was written while the server ran, so that only local.ini counts for it */
  isOverruled(section: string, key: string): boolean {
    return this.#overruled.has(originKey(section, key))
  }

  /**
   * @param listener called after each change has taken effect; it must not throw
   * @returns a function that ends the calls
   */
  onChange(listener: ConfigListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** @returns the number in effect, in the unit that defaults.ts names; the default if the key is set to nothing */
  integer(section: string, key: string): number {
    return Number(this.#typed(section, key))
  }

  /** @returns a number, such as bytes; Infinity for `infinity` */
  bytes(section: string, key: string): number {
    const text = this.#typed(section, key)
    return text === 'infinity' ? Number.POSITIVE_INFINITY : Number(text)
  }

  /** @returns whether the value is `true`; false for a key that is not set */
  boolean(section: string, key: string): boolean {
    return this.get(section, key) === 'true'
  }

  /** @returns the key's stored value, in local.ini as it is on disk now or among the shared ones; undefined: none */
  async stored(section: string, key: string): Promise<string | undefined> {
    if (this.#shared !== null && isSharedByNodes(section, key)) {
      return this.#shared.read.sections.get(section)?.get(key)
    }
    return this.#local.stored(section, key)
  }

  #typed(section: string, key: string): string {
    const text = this.get(section, key) || knownKey(section, key)?.value
    if (!text) throw new Error(`${section}/${key} has no default.`)
    return text
  }

  /** Refuses a change that would open the server. @throws bad_request */
  #refuseUnsafe(section: string, key: string, value: string | undefined): void {
    const own = ownIn(this.#current)
    const after: Own = (each, name) => (each === section && name === key ? value : own(each, name))
    const database = valueInEffect(after, 'chttpd_auth', 'authentication_db') || USERS_DATABASE
    const problemOfUsers = problemOfUsersDatabase(this.#isHosted, database)
    if (problemOfUsers !== null) throw new CouchError('bad_request', problemOfUsers)
    const problem = problemOfProxyAuth((...asked) => valueInEffect(after, ...asked))
    if (problem === null) return
    // The start refuses an unsafe configuration; commands without a server still work with it.
    if (problemOfProxyAuth((...each) => this.get(...each)) === null)
      throw new CouchError('bad_request', problem)
  }

  #apply(section: string, key: string, value: string | undefined, { persist = true }: WriteOptions): void {
    const isShared = this.#shared !== null && isSharedByNodes(section, key)
    const from = persist ? (isShared ? 'shared' : 'local.ini') : 'memory'
    if (from === 'local.ini' || value === undefined) this.#origins.delete(originKey(section, key))
    else this.#origins.set(originKey(section, key), { from, name: null })
    if (value === undefined) this.#current.get(section)?.delete(key)
    else put(this.#current, section, key, value)
    this.#read.clear()
    this.#notify(section, key)
  }

  /** Notifies of a key, and of the newer key that it may stand for. */
  #notify(section: string, key: string): void {
    const newer = newerSection(section, key)
    for (const each of newer === null ? [section] : [section, newer]) {
      for (const listener of this.#listeners) listener(each, key, this.get(each, key))
    }
  }

  /** All values are in effect before the first listener is called. */
  #replace(fresh: Sections): string[] {
    const old = this.#current
    this.#current = fresh
    this.#read.clear()
    const changed = differences(old, fresh)
    for (const [section, key] of changed) this.#notify(section, key)
    return changed.map(([section, key]) => `${section}/${key}`)
  }

  /** Decides and writes; again if another node has changed a setting in the meantime. */
  async #write(section: string, key: string, value: string | null, options: WriteOptions): Promise<string> {
    const { persist = true, isOwn = false, ifUnset = false, precondition } = options
    for (let tries = 1; ; tries++) {
      await precondition?.()
      const old = this.get(section, key)
      if (value === null && old === undefined) throw new CouchError('unknown_config_value')
      if (ifUnset && old) return old
      this.#refuseUnsafe(section, key, value ?? undefined)
      if (!persist || (await this.#store(section, key, value))) {
        if (persist && !isOwn) this.#overruled.add(originKey(section, key))
        this.#apply(section, key, value ?? undefined, options)
        return old ?? ''
      }
      await this.#readBefore(tries)
    }
  }

  /** @throws unavailable if the nodes have changed their settings at the same time too often */
  async #readBefore(tries: number): Promise<void> {
    if (tries === MAX_TRIES) throw new CouchError('unavailable')
    await this.#refresh()
  }

  /** @returns false if another node has changed a shared setting since this one has read them */
  async #store(section: string, key: string, value: string | null): Promise<boolean> {
    if (this.#shared !== null && isSharedByNodes(section, key)) {
      const { store, read } = this.#shared
      const written = await store.write(read, section, key, value)
      if (written === null) return false
      this.#shared.read = written
      return true
    }
    await this.#local.edit((text) =>
      value === null ? deleteInText(text, section, key) : setInText(text, section, key, value),
    )
    return true
  }

  /** Reads all sources. @param look as in {@link reload} */
  async #readAgain(
    shared: SettingsRead | null,
    look: (fresh: FreshConfig) => Promise<void>,
  ): Promise<string[]> {
    const { sections, text, origins } = await readSources(
      this.#sources,
      (...key) => this.isOverruled(...key),
      shared?.sections ?? null,
    )
    requireSafeProxyAuth((...key) => valueInEffect(ownIn(sections), ...key))
    await look({ sections, text, env: this.#sources.env })
    this.#origins = origins
    return this.#replace(sections)
  }

  /** Applies what other nodes have changed. As an own change, it overrides the environment and the command line. */
  async #refresh(): Promise<void> {
    if (this.#shared === null) return
    const { store, read: before, onFault } = this.#shared
    const read = await store.read(before)
    this.#shared.read = read
    for (const [section, key] of differences(before.sections, read.sections)) {
      const value = read.sections.get(section)?.get(key)
      try {
        if (value !== undefined) checkSetting(section, key, value)
        this.#refuseUnsafe(section, key, value)
      } catch (fault) {
        onFault(fault)
        continue
      }
      this.#overruled.add(originKey(section, key))
      this.#apply(section, key, value, {})
    }
  }

  #inTurn<T>(write: () => Promise<T>): Promise<T> {
    const result = this.#lastWrite.then(write)
    this.#lastWrite = result.catch(() => undefined)
    return result
  }
}
