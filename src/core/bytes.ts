/**
 * Orders texts by their UTF-8 bytes, smaller first, as ids and revisions are ordered (protocol.md 2.2, 2.3); both must
 * be free of lone surrogates.
 */
export function compareUtf8(a: string, b: string): number {
  const end = Math.min(a.length, b.length)
  for (let i = 0; i < end; i++) {
    const left = a.charCodeAt(i)
    const right = b.charCodeAt(i)
    if (left !== right) return byteRank(left) - byteRank(right)
  }
  return a.length - b.length
}

// UTF-16 puts surrogates (characters above U+FFFF) before U+E000 to U+FFFF, UTF-8 puts them after: swap the two.
function byteRank(unit: number): number {
  if (unit < 0xd800) return unit
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}
