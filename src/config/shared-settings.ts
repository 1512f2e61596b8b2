/**
 * The settings that all nodes of a server share: which they are, and where they are kept if several nodes write to one
 * store. Where one process has the data for itself, local.ini has all settings.
 */
import { randomBytes } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { allRecords, readRecord, type WatchedRecords } from '../storage/records.ts'
import type { Sections } from './ini-file.ts'
import { put } from './sources.ts'

/** Sections whose keys concern a machine, its addresses, its files and its log. */
const OWN_SECTIONS: ReadonlySet<string> = new Set(['httpd', 'log', 'ssl', 'vendor'])
/** Keys of the other sections that do. */
const OWN_KEYS: Readonly<Record<string, RegExp>> = {
  chttpd: /^(?:port|bind_address|socket_options|server_options|x_forwarded_\w+)$/,
  couchdb: /^(?:database_dir|view_index_dir|max_dbs_open|single_node|uuid|uri_file)$/,
  replicator: /(?:_file|^password)$/,
  settee:
    /^(?:mode|node_name|tls_bind_address|trusted_proxies|max_connections|max_network_connections|stranger_requests|body_\w+|database_threads|thread_heap|sandbox_memory|upgrade_copies_days|backup_\w+|free_space_floor|replaced_days|standby_\w+|store|store_\w+|drain_seconds)$/,
}

/**
 * Whether a setting decides who has access or what is accepted, and is not one of the machine. All nodes of a server share
 * these, and a standby takes them from its primary.
 */
export function isSharedSetting(section: string, key: string): boolean {
  return !OWN_SECTIONS.has(section) && !(Object.hasOwn(OWN_KEYS, section) && OWN_KEYS[section]?.test(key))
}

/** As {@link isSharedSetting}, and the mode, which a standby does not take from its primary. */
export function isSharedByNodes(section: string, key: string): boolean {
  return (section === 'settee' && key === 'mode') || isSharedSetting(section, key)
}

/** A record for each setting, and one with the version of all of them. */
const KIND = 'config'
const VERSION_KIND = 'config-version'
const VERSION_KEY = 'version'
/** Bytes of all shared settings, as for local.ini. */
const MAX_BYTES = 1_048_576
/** The wait after the settings could not be read, in ms. */
const RETRY_MS = 1000

/** The shared settings at one moment. */
export interface SettingsRead {
  /** A text that differs after each change; null: nothing was ever written. */
  readonly version: string | null
  readonly sections: Sections
}

export class SharedSettings {
  readonly #records: WatchedRecords

  constructor(records: WatchedRecords) {
    this.#records = records
  }

  /**
   * @param before what was read last
   * @returns it, if nothing has changed
   * @throws as `readRecords`
   */
  async read(before: SettingsRead | null): Promise<SettingsRead> {
    // Read first: the settings may be newer than the version then, but not older.
    const version = await readRecord(this.#records, VERSION_KIND, VERSION_KEY)
    if (before?.version === version) return before
    const sections: Sections = new Map()
    for await (const { key, value } of allRecords(this.#records, KIND)) {
      const [section, name] = JSON.parse(key) as [section: string, key: string]
      put(sections, section, name, value)
    }
    return { version, sections }
  }

  /**
   * Sets a setting, or removes it (null); durable when resolved.
   * @param before what was read last
   * @returns the settings after it; null if another node has changed a setting since: then nothing has changed
   * @throws bad_request if all settings together are too large; as `writeRecords`
   */
  async write(
    before: SettingsRead,
    section: string,
    key: string,
    value: string | null,
  ): Promise<SettingsRead | null> {
    if (value !== null && sizeOf(before.sections) + lengthOf(section, key, value) > MAX_BYTES) {
      throw new CouchError('bad_request', `The configuration would be larger than ${MAX_BYTES} bytes.`)
    }
    const version = randomBytes(12).toString('base64url')
    const isWritten = await this.#records.writeRecords([
      { kind: VERSION_KIND, key: VERSION_KEY, value: version, expected: before.version },
      { kind: KIND, key: JSON.stringify([section, key]), value },
    ])
    if (!isWritten) return null
    const sections: Sections = new Map([...before.sections].map(([name, keys]) => [name, new Map(keys)]))
    if (value === null) sections.get(section)?.delete(key)
    else put(sections, section, key, value)
    return { version, sections }
  }

  /**
   * Calls `refresh` when this or another node may have changed a setting, again if it fails.
   * @returns a function that ends this
   */
  follow(refresh: () => Promise<void>, onFault: (fault: unknown) => void): () => void {
    let retry: NodeJS.Timeout | undefined
    let isOver = false
    const ask = (): void => {
      clearTimeout(retry)
      refresh().catch((fault: unknown) => {
        onFault(fault)
        if (!isOver) retry = setTimeout(ask, RETRY_MS).unref()
      })
    }
    const unwatch = this.#records.watchCatalog((change) => {
      if (change.type === 'any' || (change.type === 'records' && change.kind === VERSION_KIND)) ask()
    })
    return () => {
      isOver = true
      unwatch()
      clearTimeout(retry)
    }
  }
}

function sizeOf(sections: Sections): number {
  let size = 0
  for (const [section, keys] of sections) {
    for (const [key, value] of keys) size += lengthOf(section, key, value)
  }
  return size
}

function lengthOf(...texts: string[]): number {
  return texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
}
