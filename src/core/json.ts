/** Pieces of JSON text, for answers that are put together row by row. */

/** What a string of JSON cannot hold as it stands: quotes, backslashes, control characters, lone surrogates. */
const NOT_PLAIN = /[^ !#-[\]-\ud7ff\ue000-\uffff]/

/** What JSON.stringify gives for a string, in half its time for the ids and revisions that there are. */
export function quoted(text: string): string {
  return NOT_PLAIN.test(text) ? JSON.stringify(text) : `"${text}"`
}

// How deep JSON may be nested: what walks through values, JSON.stringify among it, has a stack that ends.

/** Levels of objects and arrays, the outermost counted. */
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

/** Whether a value of parsed JSON is an object: no list, and not null. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
