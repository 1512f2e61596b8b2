/** Hides the password of an Address on the screen. The user can still edit the rest of it. Pure. */

/** Stands for the password. */
export const MASK = '••••••••'

/** @returns the text with {@link MASK} in place of a password */
export function masked(text: string): string {
  const place = passwordIn(text)
  return place === null ? text : `${text.slice(0, place.from)}${MASK}${text.slice(place.to)}`
}

/** @returns the text with the password of `known` in place of {@link MASK} */
export function unmasked(text: string, known: string): string {
  const [place, own] = [passwordIn(text), passwordIn(known)]
  if (place === null || own === null || text.slice(place.from, place.to) !== MASK) return text
  return `${text.slice(0, place.from)}${known.slice(own.from, own.to)}${text.slice(place.to)}`
}

/** Where the password stands: behind the first colon of what is before the last `@` of the authority. */
function passwordIn(text: string): { readonly from: number; readonly to: number } | null {
  const start = /^\s*[a-z]+:\/\//i.exec(text)?.[0].length ?? 0
  const slash = text.indexOf('/', start)
  const authority = text.slice(start, slash < 0 ? undefined : slash)
  const [colon, end] = [authority.indexOf(':'), authority.lastIndexOf('@')]
  return colon < 0 || colon + 1 >= end ? null : { from: start + colon + 1, to: start + end }
}
