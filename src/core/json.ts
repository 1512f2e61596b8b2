/** JSON text and parsed JSON. */

/** Characters that a JSON string must escape: quotes, backslashes, control characters, lone surrogates. */
const NOT_PLAIN = /[^ !#-[\]-\ud7ff\ue000-\uffff]/

/** The result of JSON.stringify for a string, in half the time for common ids and revisions. */
export function quoted(text: string): string {
  return NOT_PLAIN.test(text) ? JSON.stringify(text) : `"${text}"`
}

/** As {@link quoted}, without the quotes, for a text that is put between others: each piece more takes time. */
export function escaped(text: string): string {
  return NOT_PLAIN.test(text) ? JSON.stringify(text).slice(1, -1) : text
}

/** Maximum levels of objects and arrays, since JSON.stringify and others recurse and would exhaust the stack. */
export const MAX_JSON_DEPTH = 512

/** Whether a value that JSON.parse has made is nested deeper than {@link MAX_JSON_DEPTH}. */
export function isTooDeep(value: unknown): boolean {
  return isDeeper(value, MAX_JSON_DEPTH)
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  const members: unknown[] = Array.isArray(value) ? value : Object.values(value)
  for (const member of members) if (isDeeper(member, levels - 1)) return true
  return false
}

/** Whether a value of parsed JSON is an object: neither an array nor null. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** @returns null for no text, or one that is not a JSON object, such as a damaged record, or one of another version */
export function jsonObjectIn(text: string | null): Record<string, unknown> | null {
  if (text === null) return null
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : null
  } catch {
    return null
  }
}
