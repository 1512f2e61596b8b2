/** Bytes in messages between threads: short ones are sent as texts, longer ones by transferring their memory. */
import type { TransferListItem } from 'node:worker_threads'
import { type ByteText, bytesOfText, byteText } from '../core/bytes.ts'

/** The memory of longer bytes is transferred, because a string is copied once in each thread (docs/decisions/0006). */
export const MAX_TEXT_BYTES = 16 * 1024

export interface PackedArgs {
  readonly args: readonly unknown[]
  /** The index of the argument whose bytes are sent as a text; -1 if there is none. */
  readonly textAt: number
}

/**
 * Packs the arguments of a call: a short body as a text, other bytes with memory of their own.
 * @param transfers receives the memory to transfer
 */
export function packArgs(args: readonly unknown[], transfers: TransferListItem[]): PackedArgs {
  // The index is sent along, because a user's JSON could look like packed bytes.
  const textAt = args.findIndex(isShortBody)
  const packed = args.map((arg, at) => (at === textAt ? shortBytesAsTexts(arg) : ownBytes(arg, transfers)))
  return { args: packed, textAt }
}

function isShortBody(arg: unknown): boolean {
  const bytes = bodyBytes(arg)
  return bytes !== null && bytes.length <= MAX_TEXT_BYTES
}

/** Reverses {@link packArgs}. */
export function unpackArgs({ args, textAt }: PackedArgs): readonly unknown[] {
  if (textAt < 0) return args
  const { bytes } = args[textAt] as { readonly bytes: ByteText }
  return args.with(textAt, { bytes: bytesOfText(bytes) })
}

/** The same value with short byte arrays as {@link ByteText}, at the top or one level below. */
export function shortBytesAsTexts(value: unknown): unknown {
  return withBytes(value, (bytes) => (bytes.length > MAX_TEXT_BYTES ? bytes : byteText(bytes)))
}

/**
 * The same value with byte arrays that own their memory, at the top or one level below. Only such memory can be
 * transferred; Node's small Buffers share one pool. Bytes in lists or at deeper levels are copied.
 * @param transfers receives the memory to transfer
 */
export function ownBytes(value: unknown, transfers: TransferListItem[]): unknown {
  return withBytes(value, (bytes) => {
    const own = owned(bytes)
    transfers.push(own.buffer as ArrayBuffer)
    return own
  })
}

/** Allocates nothing before it finds bytes: it is called for every message, and few messages have any. */
function withBytes(value: unknown, change: (bytes: Uint8Array) => unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  if (value instanceof Uint8Array) return change(value)
  let changed: Record<string, unknown> | undefined
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name]
    if (!(member instanceof Uint8Array)) continue
    changed ??= { ...value }
    changed[name] = change(member)
  }
  return changed ?? value
}

function owned(bytes: Uint8Array): Uint8Array {
  const isWhole = bytes.byteLength === bytes.buffer.byteLength && bytes.byteLength > 0
  // A plain Uint8Array in either case: the class Buffer does not survive the post.
  return isWhole ? new Uint8Array(bytes.buffer) : Uint8Array.prototype.slice.call(bytes)
}

/** @returns the bytes of an argument that is a body; null for any other */
export function bodyBytes(arg: unknown): Uint8Array | null {
  if (typeof arg !== 'object' || arg === null || !('bytes' in arg)) return null
  return arg.bytes instanceof Uint8Array ? arg.bytes : null
}
