/** What a bad disk does to a file. */
import type { Random } from '../power-loss/random.ts'

/** Of SQLite files and their logs, up to a header. */
const PAGE = 4096

/** Changes some bytes of a file at random. @returns the new content, and what was done */
export function damaged(content: Buffer, random: Random): { readonly bytes: Buffer; readonly what: string } {
  const bytes = Buffer.from(content)
  const at = random.below(bytes.length)
  const pages = Math.max(1, Math.floor(bytes.length / PAGE))
  const page = () => PAGE * random.below(pages)
  switch (random.below(7)) {
    case 0:
    case 1:
      bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << random.below(8)), at)
      return { bytes, what: `one bit at ${at}` }
    case 2: {
      const length = 1 + random.below(64)
      bytes.fill(0, at, Math.min(bytes.length, at + length))
      return { bytes, what: `${length} zeros at ${at}` }
    }
    case 3: {
      const length = 1 + random.below(16)
      for (let n = at; n < Math.min(bytes.length, at + length); n++) bytes[n] = random.below(256)
      return { bytes, what: `${length} random bytes at ${at}` }
    }
    case 4: {
      const [from, to] = [page(), page()]
      bytes.set(content.subarray(from, Math.min(from + PAGE, from + bytes.length - to)), to)
      bytes.set(content.subarray(to, Math.min(to + PAGE, to + bytes.length - from)), from)
      return { bytes, what: `the pages at ${from} and ${to} swapped` }
    }
    case 5: {
      const from = page()
      bytes.fill(0, from, Math.min(bytes.length, from + PAGE))
      return { bytes, what: `the page at ${from} zeroed` }
    }
    default: {
      const isPage = random.below(2) === 0
      const length = isPage ? page() : at
      return { bytes: bytes.subarray(0, length), what: `truncated to ${length} bytes` }
    }
  }
}
