/** Numbers, sizes and times in the user's language. */

/** Browsers may name languages that are no language tags, such as `en-US@posix`, and Intl throws for these. */
const LOCALE = navigator.languages.filter(isLanguage)
const WHOLE = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 })
const ONE = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 1 })
const DATE_TIME = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium', timeStyle: 'short' })
const EXACT_TIME = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium', timeStyle: 'medium' })
const CLOCK = new Intl.DateTimeFormat(LOCALE, { timeStyle: 'medium' })
const DATE = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium' })
const RELATIVE = new Intl.RelativeTimeFormat(LOCALE, { numeric: 'auto' })
const PLURALS = new Intl.PluralRules('en')

function isLanguage(name: string): boolean {
  try {
    return Intl.getCanonicalLocales(name).length > 0
  } catch {
    return false
  }
}

/** A whole number with separators, such as `1,234,567`. */
export function number(value: number): string {
  return WHOLE.format(value)
}

/** A number with one decimal below 10, such as `7.4` and `213`. */
export function amount(value: number): string {
  return Math.abs(value) < 10 ? ONE.format(value) : WHOLE.format(value)
}

/** `1 document`, `2 documents`. */
export function count(value: number, one: string, other: string): string {
  return `${number(value)} ${PLURALS.select(value) === 'one' ? one : other}`
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const

/** A size, such as `1.2 MB`; a kB has 1,000 bytes. */
export function bytes(value: number): string {
  let [rest, unit] = [Math.abs(value), 0]
  while (rest >= 999.5 && unit < UNITS.length - 1) [rest, unit] = [rest / 1000, unit + 1]
  return `${value < 0 ? '−' : ''}${unit === 0 ? number(rest) : amount(rest)} ${UNITS[unit]}`
}

/** A share of 1 in percent. */
export function percent(share: number): string {
  return `${amount(share * 100)} %`
}

export type TimeLike = string | number | Date

/** Date and time to the minute. */
export function time(value: TimeLike): string {
  return DATE_TIME.format(new Date(value))
}

/** Date and time to the second. */
export function exactTime(value: TimeLike): string {
  return EXACT_TIME.format(new Date(value))
}

/** The time of day to the second. */
export function clock(value: TimeLike): string {
  return CLOCK.format(new Date(value))
}

export function date(value: TimeLike): string {
  return DATE.format(new Date(value))
}

const SPANS = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
] as const

/** `3 minutes ago`, `yesterday`. */
export function ago(value: TimeLike, now = Date.now()): string {
  const seconds = (new Date(value).getTime() - now) / 1000
  for (const [unit, length] of SPANS) {
    if (Math.abs(seconds) >= length) return RELATIVE.format(Math.trunc(seconds / length), unit)
  }
  return RELATIVE.format(Math.trunc(seconds), 'second')
}

/** A length of time in its two greatest units, such as `2 d 3 h` and `45 s`. */
export function duration(seconds: number): string {
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [Math.floor(seconds) % 60, 's'],
  ] as const
  const first = parts.findIndex(([value]) => value > 0)
  if (first === -1) return seconds > 0 && seconds < 1 ? `${number(seconds * 1000)} ms` : '0 s'
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(' ')
}

const TIME_LABEL = new Intl.DateTimeFormat(LOCALE, { hour: '2-digit', minute: '2-digit' })
const DAY_LABEL = new Intl.DateTimeFormat(LOCALE, { day: 'numeric', month: 'short' })

const DAY_TIME_LABEL = new Intl.DateTimeFormat(LOCALE, {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
})

/** Day, month, hours and minutes, beside a plot. */
export function dayTimeLabel(value: TimeLike): string {
  return DAY_TIME_LABEL.format(new Date(value))
}

/** Hours and minutes, for the axis of a plot. */
export function timeLabel(value: TimeLike): string {
  return TIME_LABEL.format(new Date(value))
}

/** Day and month, for the axis of a plot. */
export function dayLabel(value: TimeLike): string {
  return DAY_LABEL.format(new Date(value))
}
