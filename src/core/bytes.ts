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

/**
 * Bytes as a string of as many characters. Nothing reads it as text; it is how short bytes travel: to another thread
 * without memory of their own that would change hands, and to a socket in one write with what stands before them.
 */
export type ByteText = string

/** Bytes that are ready to be sent. */
export type Sendable = Uint8Array | ByteText

export function byteText(bytes: Uint8Array): ByteText {
  const buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  return buffer.toString('latin1')
}

export function bytesOfText(text: ByteText): Uint8Array {
  return Buffer.from(text, 'latin1')
}

// Texts as bytes.

/** Shorter texts are put together before they are written, since each write costs about as much. */
const WRITE_CHARS = 1024
/** What a unit of UTF-16 becomes at the most. */
const MOST_BYTES = 3

/** Of the thread; nothing stands in it between two calls. With room for a chunk of `_all_docs`. */
const scratch = Buffer.from(new ArrayBuffer(640 * 1024))
const scratchBytes = new Uint8Array(scratch.buffer)

/**
 * The UTF-8 of texts with a separator between any two, in memory of its own.
 *
 * Texts are written one by one: joined, they would be copied once more, into fresh pages of memory where they are
 * long, and one character beyond Latin-1 would make two bytes of each. Rows of 1.2 kB by `join` and `Buffer.from`:
 * 2.3 us each, 4.3 us with one such row among them; here 0.6 us.
 */
export function encodeTexts(texts: readonly string[], separator = ''): Uint8Array {
  const bytes = new Utf8Bytes()
  let text = ''
  for (let n = 0; n < texts.length; n++) {
    text += n === 0 ? texts[n] : separator + texts[n]
    if (text.length < WRITE_CHARS) continue
    bytes.write(text)
    text = ''
  }
  bytes.write(text)
  return bytes.end()
}

/** Gathers bytes in {@link scratch}. */
class Utf8Bytes {
  readonly #full: Uint8Array[] = []
  #at = 0

  write(text: string): void {
    const most = text.length * MOST_BYTES
    if (most > scratch.length - this.#at) this.#flush()
    if (most > scratch.length) this.#full.push(Buffer.from(text))
    else this.#at += scratch.write(text, this.#at)
  }

  #flush(): void {
    if (this.#at > 0) this.#full.push(scratchBytes.slice(0, this.#at))
    this.#at = 0
  }

  end(): Uint8Array {
    this.#flush()
    return this.#full.length === 1 ? (this.#full[0] as Uint8Array) : Buffer.concat(this.#full)
  }
}
