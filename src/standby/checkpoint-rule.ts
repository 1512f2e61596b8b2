/**
 * Which `_local` documents of its primary a standby stores. All of them, except the checkpoints of devices that push: such a
 * device remembers how far it has pushed, and trusts its own number if the server's checkpoint is of the same session
 * (docs/decisions/0048). What it pushed in the last moment of the primary would be lost. Without the checkpoint it compares
 * its documents' ids once.
 *
 * The checkpoint of a device that pulls has sequences of the primary itself, and the device resumes at the older of both
 * ends.
 */
import { claimedSequences } from '../storage/checkpoints.ts'
import { epochIn } from '../storage/sequence.ts'

/** A sequence token of settee, with or without a code. */
const TOKEN = /^\d{1,15}-([0-9A-Za-z_-]+)$/

/** @returns the epoch of a token of settee; null for any other sequence */
export function epochOf(token: unknown): string | null {
  const opaque = typeof token === 'string' ? TOKEN.exec(token)?.[1] : undefined
  return opaque === undefined ? null : epochIn(opaque)
}

/**
 * The sequence tokens that a checkpoint has.
 * @param text a `_local` document as JSON
 * @returns null: the document is no checkpoint; `foreign`: it is one whose sequences are not all tokens of settee
 */
export function claimedTokens(text: string): readonly string[] | 'foreign' | null {
  const sequences = claimedSequences(text)
  if (sequences === null) return null
  const tokens = sequences.filter((seq) => typeof seq === 'string' && epochOf(seq) !== null) as string[]
  // The number 0 of a session that has just begun may be of a push.
  return tokens.length === sequences.length ? tokens : 'foreign'
}
