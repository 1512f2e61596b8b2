/** Times for `<input type="datetime-local">`, which knows no time zone. */

/** @param time ISO 8601 @returns the local time to the second; empty for undefined, or for what is no time */
export function toLocal(time: string | undefined): string {
  const then = new Date(time ?? Number.NaN)
  if (Number.isNaN(then.getTime())) return ''
  const local = new Date(then.getTime() - then.getTimezoneOffset() * 60_000)
  return local.toISOString().slice(0, 19)
}

/**
 * @param local as the field has it
 * @param slack ms that are added, as a field without seconds means the whole minute
 * @returns ISO 8601; undefined for an empty or unfinished field
 */
export function fromLocal(local: string, slack: number): string | undefined {
  const then = new Date(local)
  if (Number.isNaN(then.getTime())) return undefined
  const hasSeconds = /:\d\d:\d\d/.test(local)
  return new Date(then.getTime() + (hasSeconds ? slack % 1000 : slack)).toISOString()
}
