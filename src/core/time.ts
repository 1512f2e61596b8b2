/** Times as people and programs write them. Pure. */

const MILLISECONDS = /^\d{1,15}$/
/** ISO 8601, of a date and time, with a space for the T too; a `+` of an address may have become a space. */
const ISO = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(\.\d{1,3})?)?)?(Z|[+ -]\d\d:?\d\d)?$/

/**
 * @param text ISO 8601, `2025-03-01T14:05Z`, to the minute, the second or the millisecond, or milliseconds since 1970
 * @param zone what a time without a zone is of
 * @returns ms since 1970; null for anything else
 */
export function parseTime(text: string, zone: 'utc' | 'local'): number | null {
  if (MILLISECONDS.test(text)) return Number(text)
  const match = ISO.exec(text.trim())
  if (match === null) return null
  const [, date = '', minute = '00:00', second = '00', fraction = '', offset] = match
  const where = offset?.replace(' ', '+') ?? (zone === 'utc' ? 'Z' : '')
  const time = Date.parse(`${date}T${minute}:${second}${fraction}${where}`)
  return Number.isNaN(time) || !isDay(date) ? null : time
}

/** There is no 31st of February, which Date takes for the 3rd of March. */
function isDay(date: string): boolean {
  const midnight = Date.parse(`${date}T00:00:00Z`)
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(date)
}
