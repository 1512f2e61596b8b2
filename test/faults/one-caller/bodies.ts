/** Gzipped bodies, each made once. */
import { gzipSync } from 'node:zlib'

const made = new Map<string, Uint8Array>()

/** @returns the text that `make` gives, gzipped; the same bytes for the same name */
export function zipped(name: string, make: () => string): Uint8Array {
  const known = made.get(name)
  if (known !== undefined) return known
  const bytes = gzipSync(make(), { level: 6 })
  made.set(name, bytes)
  return bytes
}
