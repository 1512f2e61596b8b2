/**
 * The settings that a standby takes from its primary: those that decide who has access and what is accepted, with the hashes
 * of admins' passwords and the secret that signs session cookies. Settings of the machine stay its own.
 */
import { isHashed } from '../auth/password.ts'
import type { Config } from '../config/config.ts'
import { knownKey } from '../config/defaults.ts'
import { isSharedSetting } from '../config/shared-settings.ts'
import { asCouchError } from '../core/errors.ts'

/** Sections of keys with values. */
export type CopiedSettings = Readonly<Record<string, Readonly<Record<string, string>>>>

/** @returns the settings in effect that a standby takes, defaults aside; with secrets */
export function copiedSettings(config: Config): CopiedSettings {
  const sections = Object.entries(config.all()).map(([section, keys]) => {
    const own = Object.entries(keys).filter(
      ([key, value]) => isSharedSetting(section, key) && value !== knownKey(section, key)?.value,
    )
    return [section, Object.fromEntries(own)] as const
  })
  return Object.fromEntries(sections.filter(([, keys]) => Object.keys(keys).length > 0))
}

export interface SettingsOutcome {
  /** What the primary has set: `[section, key]` as JSON. */
  readonly keys: readonly string[]
  /** What was refused here, with the reason; without values. */
  readonly refused: readonly string[]
}

/**
 * Brings this server's settings into line with its primary's. Keys that only this server has set stay.
 * @param before the keys of the last time; those that the primary no longer has are removed
 */
export async function applySettings(
  config: Config,
  settings: CopiedSettings,
  before: readonly string[],
): Promise<SettingsOutcome> {
  const wanted = Object.entries(settings).flatMap(([section, keys]) =>
    Object.entries(keys)
      .filter(([key, value]) => isSharedSetting(section, key) && (section !== 'admins' || isHashed(value)))
      .map(([key, value]) => ({ section, key, value, id: idOf(section, key) })),
  )
  const refused: string[] = []
  const attempt = async (id: string, work: () => Promise<unknown>) => {
    try {
      await work()
    } catch (error) {
      refused.push(`${id}: ${asCouchError(error).message}`)
    }
  }
  for (const { section, key, value, id } of wanted) {
    if (config.get(section, key) === value) continue
    await attempt(id, () => config.set(section, key, value, { isOwn: true }))
  }
  const keys = wanted.map(({ id }) => id)
  const kept = new Set(keys)
  for (const id of before) {
    const [section = '', key = ''] = JSON.parse(id) as string[]
    if (kept.has(id) || config.get(section, key) === undefined) continue
    await attempt(id, () => config.delete(section, key, { isOwn: true }))
  }
  return { keys, refused }
}

function idOf(section: string, key: string): string {
  return JSON.stringify([section, key])
}
