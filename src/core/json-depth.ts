/** How deep JSON may be nested: what walks through values, JSON.stringify among it, has a stack that ends. */

/** Levels of objects and arrays, the outermost counted. */
export const MAX_JSON_DEPTH = 512

/** Whether a value that JSON.parse has made is nested deeper than {@link MAX_JSON_DEPTH}. */
export function isTooDeep(value: unknown): boolean {
  return isDeeper(value, MAX_JSON_DEPTH)
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return levels === 0 || Object.values(value).some((member) => isDeeper(member, levels - 1))
}
