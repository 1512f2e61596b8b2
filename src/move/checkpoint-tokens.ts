/**
 * The sequence tokens that devices will send after a move. They stand in the checkpoints that replications have left in
 * the old database (protocol.md 14.2). Pure.
 */
import { leadingNumber, parseCouchCheckpoint, parsePouchCheckpoint } from '../replication/checkpoint.ts'
import type { Position } from '../replication/requests/replication-request.ts'

/**
 * Finds the sequences in one `_local` document. A checkpoint of a push has sequences of the device's own database, which
 * cannot be told from the others and do no harm.
 * @param doc any JSON
 * @returns empty for anything but a checkpoint
 */
export function sequencesIn(doc: unknown): readonly Position[] {
  const pouch = parsePouchCheckpoint(doc)
  if (pouch !== null) return [pouch.last_seq, ...pouch.history.map(({ last_seq }) => last_seq)]
  const couch = parseCouchCheckpoint(doc)
  if (couch !== null) return [couch.source_last_seq, ...couch.history.map(({ recorded_seq }) => recorded_seq)]
  return []
}

/** Collects sequences of one database, each once. */
export class CheckpointTokens {
  readonly #tokens = new Set<string>()
  readonly #hasTokens: boolean

  /** @param end the end of the old database's feed */
  constructor(end: Position) {
    // Where sequences are plain numbers, rows give enough points (feed-comparison.ts); elsewhere a number is a push's.
    this.#hasTokens = typeof end === 'string' && !isNumber(end)
  }

  /** Notes the sequences of a `_local` document. At most {@link MAX_TOKENS} are kept. */
  note(doc: unknown): void {
    if (!this.#hasTokens) return
    for (const position of sequencesIn(doc)) {
      const token = String(position)
      if (this.#tokens.size < MAX_TOKENS && !isNumber(token)) this.#tokens.add(token)
    }
  }

  /** The newest first, by their leading numbers. */
  list(): readonly string[] {
    return [...this.#tokens].sort((a, b) => leadingNumber(b) - leadingNumber(a))
  }
}

/** The most tokens of one database. */
const MAX_TOKENS = 5000

function isNumber(token: string): boolean {
  return /^\d+$/.test(token)
}
