/** The sources of a configuration, read together. */
import { join, resolve } from 'node:path'
import type { Sections } from './ini-file.ts'
import { isSharedSetting } from './shared-settings.ts'
import {
  type ConfigFlags,
  type LocalIni,
  type Origins,
  originKey,
  overlay,
  placeOf,
  put,
  readLocalIni,
} from './sources.ts'
import { StartError } from './start-error.ts'
import { problemWith } from './values.ts'

export interface ConfigOptions {
  /** The folder that holds local.ini. */
  readonly dataDir: string
  readonly env: NodeJS.ProcessEnv
  readonly flags: ConfigFlags
}

/**
 * Reads local.ini, the settings that the nodes share, the environment and the command line.
 * @param isOverruled as for {@link overlay}
 * @param shared the settings that the nodes share, which then must not be in local.ini; null: this node is alone
 * @throws StartError
 */
export async function readSources(
  { dataDir, env, flags }: ConfigOptions,
  isOverruled: (section: string, key: string) => boolean,
  shared: Sections | null,
): Promise<LocalIni & { readonly origins: Origins }> {
  const local = await readLocalIni(localIniIn(dataDir))
  const origins: Origins = new Map()
  if (shared !== null) {
    refuseShared(localIniIn(dataDir), local)
    for (const [section, keys] of shared) {
      for (const [key, value] of keys) {
        // A newer version may have written it. Its default could open what it closes.
        const problem = value === '' ? null : problemWith(section, key, value)
        if (problem !== null) throw new StartError(`The shared setting ${section}/${key} ${problem}.`)
        put(local.sections, section, key, value)
        origins.set(originKey(section, key), { from: 'shared', name: null })
      }
    }
  }
  await overlay(local.sections, env, flags, isOverruled, origins)
  return { ...local, origins }
}

/**
 * Two places for one setting would let a node open what the others have closed.
 * @throws StartError
 */
function refuseShared(path: string, { sections, text }: LocalIni): void {
  for (const [section, keys] of sections) {
    for (const key of keys.keys()) {
      if (!isSharedSetting(section, key)) continue
      throw new StartError(
        `${placeOf(path, text, section, key)}: all nodes share ${section}/${key}. Remove the line, and set it with ` +
          'PUT /_node/_local/_config.',
      )
    }
  }
}

/** @returns what is shown of the data folder, whatever the sources say; nothing of it is shown if the databases are in a store */
export function fixedIn(dataDir: string): Sections {
  return new Map([['couchdb', new Map([['database_dir', resolve(dataDir, 'databases')]])]])
}

/** The path of local.ini. */
export function localIniIn(dataDir: string): string {
  return join(dataDir, 'local.ini')
}
