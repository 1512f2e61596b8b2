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
