import { join } from 'node:path'
import { CouchError } from '../core/errors.ts'
import { writeAtomically } from './atomic-write.ts'
import { knownKey } from './defaults.ts'
import { deleteInText, parseIni, type Sections, setInText } from './ini-file.ts'
import { type ConfigFlags, defaultSections, overlay, put, readIniText, readLocalIni } from './sources.ts'
import { checkNames, checkSetting } from './values.ts'

export interface ConfigOptions {
  /** The folder that holds local.ini. */
  readonly dataDir: string
  readonly env: NodeJS.ProcessEnv
  readonly flags: ConfigFlags
}

export interface WriteOptions {
  /** False: memory only, until the next start (`X-Couch-Persist: false`). Default true. */
  readonly persist?: boolean
}

/** @param value undefined when the key is no longer set */
export type ConfigListener = (section: string, key: string, value: string | undefined) => void

/**
 * Reads the configuration: defaults < local.ini < environment < command line (design.md 5).
 * @throws StartError
 */
export async function openConfig({ dataDir, env, flags }: ConfigOptions): Promise<Config> {
  const path = join(dataDir, 'local.ini')
  const sections = defaultSections()
  for (const [section, keys] of await readLocalIni(path)) {
    for (const [key, value] of keys) put(sections, section, key, value)
  }
  await overlay(sections, env, flags)
  return new Config(path, sections)
}

/**
 * CouchDB's configuration: sections of keys with string values, changed while the server runs. A change takes
 * effect at once, whatever the environment and the command line said at the start.
 */
export class Config {
  /** Where local.ini stands, or will stand after the first change. */
  readonly path: string
  readonly #current: Sections
  readonly #listeners = new Set<ConfigListener>()
  #lastWrite: Promise<unknown> = Promise.resolve()

  /** Use {@link openConfig}. */
  constructor(path: string, sections: Sections) {
    this.path = path
    this.#current = sections
  }

  /** @returns the value in effect; the empty string for a key that is set to nothing */
  get(section: string, key: string): string | undefined {
    return this.#current.get(section)?.get(key)
  }

  /** @returns the section's keys and values, empty for an unknown one; a copy */
  section(name: string): Record<string, string> {
    // fromEntries makes own properties, also of `__proto__`.
    return Object.fromEntries(this.#current.get(name) ?? [])
  }

  /** @returns every section that has a key, as `GET /_node/_local/_config` lists them; a copy */
  all(): Record<string, Record<string, string>> {
    const filled = [...this.#current].filter(([, keys]) => keys.size > 0)
    return Object.fromEntries(filled.map(([name]) => [name, this.section(name)]))
  }

  /**
   * Sets a key, in local.ini too unless `persist` is false. Writes happen one after the other. A password in
   * section `admins` must be hashed already: `setAdmin` in the room auth does that.
   * @param value is trimmed (protocol.md 12.1)
   * @returns the old value, `""` when there was none
   * @throws bad_request, config_read_only; when local.ini cannot be written, insufficient_storage or
   *   internal_server_error, and nothing has changed
   */
  async set(section: string, key: string, value: string, options: WriteOptions = {}): Promise<string> {
    const trimmed = value.trim()
    checkSetting(section, key, trimmed)
    if (section === 'admins' && !trimmed.startsWith('-')) throw new Error('An admin is set by setAdmin.')
    return this.#inTurn(async () => {
      const old = this.get(section, key) ?? ''
      if (options.persist ?? true) await this.#edit((text) => setInText(text, section, key, trimmed))
      this.#apply(section, key, trimmed)
      return old
    })
  }

  /**
   * Removes a key, from local.ini too unless `persist` is false; a key with a default goes back to it.
   * @returns the old value
   * @throws unknown_config_value when the key is not set, and as {@link set}
   */
  async delete(section: string, key: string, options: WriteOptions = {}): Promise<string> {
    checkNames(section, key)
    return this.#inTurn(async () => {
      const old = this.get(section, key)
      if (old === undefined) throw new CouchError('unknown_config_value')
      if (options.persist ?? true) await this.#edit((text) => deleteInText(text, section, key))
      this.#apply(section, key, knownKey(section, key)?.value ?? undefined)
      return old
    })
  }

  /**
   * @param listener called after each change has taken effect; it must not throw
   * @returns a function that ends the calls
   */
  onChange(listener: ConfigListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** @returns the number in effect, in the unit that defaults.ts names; the default where the key is set to nothing */
  integer(section: string, key: string): number {
    return Number(this.#typed(section, key))
  }

  /** @returns a number, of bytes for one, Infinity for `infinity` */
  bytes(section: string, key: string): number {
    const text = this.#typed(section, key)
    return text === 'infinity' ? Number.POSITIVE_INFINITY : Number(text)
  }

  /** @returns whether the value is `true`; false for a key that is not set */
  boolean(section: string, key: string): boolean {
    return this.get(section, key) === 'true'
  }

  /** @returns the key's value in local.ini as it stands on the disk now; undefined when it is not in it */
  async stored(section: string, key: string): Promise<string | undefined> {
    return parseIni(await readIniText(this.path))
      .get(section)
      ?.get(key)
  }

  #typed(section: string, key: string): string {
    const text = this.get(section, key) || knownKey(section, key)?.value
    if (!text) throw new Error(`${section}/${key} has no default.`)
    return text
  }

  #apply(section: string, key: string, value: string | undefined): void {
    if (value === undefined) this.#current.get(section)?.delete(key)
    else put(this.#current, section, key, value)
    for (const listener of this.#listeners) listener(section, key, value)
  }

  #inTurn<T>(write: () => Promise<T>): Promise<T> {
    const result = this.#lastWrite.then(write)
    this.#lastWrite = result.catch(() => undefined)
    return result
  }

  /** Edits the file as it stands now, so that what its owner changed in the meantime is kept. */
  async #edit(change: (text: string) => string): Promise<void> {
    try {
      const text = await readIniText(this.path)
      const changed = change(text)
      if (changed !== text) await writeAtomically(this.path, changed)
    } catch (error) {
      throw writeFailure(error)
    }
  }
}

function writeFailure(error: unknown): CouchError {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new CouchError('insufficient_storage', undefined, { cause: error })
  }
  const reason = `The configuration cannot be written to local.ini (${code ?? 'unknown error'}); nothing has changed.`
  return new CouchError('internal_server_error', reason, { cause: error })
}
