/** Addresses in the page: `#/databases/notes/documents/id?key=value`. */

export interface Route {
  /** The segments of the path, unescaped. */
  readonly path: readonly string[]
  readonly query: Readonly<Record<string, string>>
}

/** @param hash with or without `#` */
export function parseHash(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#?\/?/, '').split('?', 2)
  const segments = path === '' ? [] : path.split('/').map(unescapeSegment)
  return { path: segments, query: Object.fromEntries(new URLSearchParams(query)) }
}

function unescapeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

/** @returns the hash of a route, for `href` */
export function hashOf(
  path: readonly string[],
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const given = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const text = new URLSearchParams(given).toString()
  return `#/${path.map(encodeURIComponent).join('/')}${text === '' ? '' : `?${text}`}`
}
