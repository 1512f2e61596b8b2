/** Values of settings: as people read them, and whether they fit. */
import { en } from '../../strings/en.ts'
import { bytes, duration, number } from '../../strings/format.ts'
import type { Setting, SettingKind } from './setting.ts'

const { values: texts } = en.settings

/** Units with which descriptions begin, in seconds where they are times. */
const TIMES: Readonly<Record<string, number>> = { milliseconds: 0.001, seconds: 1 }
const PLAIN_UNITS: ReadonlySet<string> = new Set(['hours', 'days', 'weeks'])

/** @returns the value with separators and unit, such as `600 seconds (10 min)`; the text itself where it is no number */
export function shownValue({ value, key, kind, about, secret }: Setting): string {
  if (value === null || value === '') return texts.unset
  if (secret) return texts.secret
  if (value === 'infinity') return texts.infinite
  if (kind.type === 'choice' || kind.type === 'text' || !/^\d{1,16}$/.test(value)) return value
  if (key === 'port') return value
  const amount = Number(value)
  const [unit = ''] = (about ?? '').split(' ', 1)
  if (kind.type === 'bytes' || unit === 'bytes') return sizeText(amount)
  if (unit === 'percent') return `${number(amount)} %`
  if (PLAIN_UNITS.has(unit)) return `${number(amount)} ${unit}`
  const seconds = TIMES[unit]
  if (seconds === undefined) return number(amount)
  const text = `${number(amount)} ${unit === 'milliseconds' ? 'ms' : 's'}`
  return amount * seconds >= 60 ? `${text} (${duration(amount * seconds)})` : text
}

function sizeText(amount: number): string {
  return amount < 1000 ? bytes(amount) : `${number(amount)} B (${bytes(amount)})`
}

/** @returns the default in the same form */
export function shownDefault(setting: Setting): string {
  return shownValue({ ...setting, value: setting.default, secret: false })
}

/** @returns where the value comes from */
export function sourceText({ source, source_name: name }: Setting): string {
  const { sources, isDefault } = en.settings.configuration
  if (source === 'default') return isDefault
  if (source === 'environment' || source === 'command line') return sources[source](name ?? source)
  return sources[source]
}

/** @returns the source alone: a file, a variable or a flag */
export function sourceName({ source, source_name: name }: Setting): string {
  const { sources, isDefault } = en.settings.configuration
  if (source === 'default') return isDefault
  return source === 'memory' ? sources.memory : (name ?? source)
}

/** @returns what is wrong with a new value, as a sentence; null if the server decides */
export function problemOf(kind: SettingKind, text: string): string | null {
  const value = text.trim()
  if (kind.type === 'integer') {
    const fits = isWhole(value) && Number(value) >= kind.min && Number(value) <= kind.max
    return fits ? null : texts.outside(kind.min, kind.max)
  }
  if (kind.type === 'bytes' || kind.type === 'count') {
    const fits = value === 'infinity' || (isWhole(value) && Number(value) >= kind.min)
    return fits ? null : kind.type === 'bytes' ? texts.tooFewBytes(kind.min) : texts.tooFew(kind.min)
  }
  return null
}

function isWhole(text: string): boolean {
  return /^\d{1,16}$/.test(text)
}

/** How a password of an admin is hashed: `PBKDF2, SHA-256, 600,000 rounds`. @returns null for an unknown form */
export function hashForm(stored: string): { readonly text: string; readonly isWeak: boolean } | null {
  const [, prf = 'sha', , , rounds] = /^-pbkdf2(?::(\w+))?-([0-9a-f]+),([^,]+),(\d+)$/.exec(stored) ?? []
  if (rounds !== undefined) {
    const digest = prf === 'sha' ? 'SHA-1' : `SHA-${prf.slice(3)}`
    return {
      text: texts.hash(digest, number(Number(rounds))),
      isWeak: Number(rounds) < 210_000 || prf === 'sha',
    }
  }
  return stored.startsWith('-hashed-') ? { text: texts.oldHash, isWeak: true } : null
}
