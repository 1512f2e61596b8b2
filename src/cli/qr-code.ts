/** QR codes on a terminal, for the camera of a phone. */
import { encode, renderUnicodeCompact } from 'uqr'

/** Modules of rest around the code, which cameras need, the more so where the terminal is dark; ISO 18004. */
const BORDER = 4
/** Bright white on black, whatever the terminal's own colours are: a code in the colours of its negative is not read by all. */
const COLOURS = '\u001b[40;97m'
const RESET = '\u001b[0m'

/** The widest code that is tried: that of 2,331 bytes. */
const MAX_BYTES = 2331

/**
 * Two modules in each character.
 * @param columns how wide the terminal is; the lines of a code that is wider would be broken
 * @returns lines; or how many columns it takes, or `too long`
 */
export function qrCode(
  text: string,
  columns: number,
): { readonly lines: string } | { readonly needs: number | null } {
  if (Buffer.byteLength(text) > MAX_BYTES) return { needs: null }
  const width = encode(text, { ecc: 'L', border: BORDER }).size
  if (width > columns) return { needs: width }
  const rows = renderUnicodeCompact(text, { ecc: 'L', border: BORDER }).split('\n')
  return { lines: rows.map((row) => `${COLOURS}${row}${RESET}\n`).join('') }
}
