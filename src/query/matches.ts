/** The answer of `_find` while it is made: tests documents, and writes those that match. */
import { quoted } from '../core/json.ts'
import { MAX_PARSED_AT_ONCE, parseInSteps } from '../documents/json-parser.ts'
import { ChunkBuffer } from '../documents/pieces.ts'
import { bookmarkOf, type FindRequest, type Position } from './find-request.ts'
import { trimFields } from './projection.ts'
import type { Selector } from './selector.ts'

export class Matches {
  readonly chunk = new ChunkBuffer()
  /** The rows of the index that were read. */
  keysExamined = 0
  /** The documents that were read. */
  docsExamined = 0
  /** Damaged documents that would have been tested. */
  damaged = 0
  readonly #request: FindRequest
  readonly #selector: Selector
  #skip: number
  #left: number
  #returned = 0
  /** The position of the last match, whether it was added or skipped. */
  #last: Position | null = null

  constructor(request: FindRequest, selector: Selector) {
    this.#request = request
    this.#selector = selector
    this.#skip = request.skip
    this.#left = request.limit
    this.chunk.add('{"docs":[')
  }

  /** Whether the answer has as many documents as the request asks for. */
  get isComplete(): boolean {
    return this.#left === 0
  }

  /**
   * Adds a document if it matches.
   * @param text its JSON
   * @returns false if the text is too long to be parsed in one turn; then nothing was done, and {@link testLong} must be
   *   called before the next document
   */
  test(position: Position, text: string): boolean {
    if (text.length > MAX_PARSED_AT_ONCE) return false
    if (this.#selector.matches(JSON.parse(text))) this.#add(position, text)
    return true
  }

  /** Adds a long document if it matches. */
  async testLong(position: Position, text: string): Promise<void> {
    if (this.#selector.matches(await parseInSteps(text))) this.#add(position, text)
  }

  #add(position: Position, text: string): void {
    this.#last = position
    if (this.#skip > 0) {
      this.#skip -= 1
      return
    }
    const { fields } = this.#request
    this.chunk.add(this.#returned === 0 ? '\r\n' : ',\r\n')
    this.chunk.add(fields.length === 0 ? text : trimFields(text, fields))
    this.#returned += 1
    this.#left -= 1
  }

  /**
   * Adds the end of the answer.
   * @param ms how long the search took
   * @param scanRatio documents read for each one found, above which there is a warning; 0: no such warning
   */
  end(ms: number, warnings: readonly string[], scanRatio: number): void {
    const { request, last } = { request: this.#request, last: this.#last }
    const members = [`"bookmark": ${quoted(last === null ? request.bookmark : bookmarkOf(last))}`]
    if (request.executionStats) members.push(`"execution_stats": ${JSON.stringify(this.#statistics(ms))}`)
    const isHigh = scanRatio > 0 && this.docsExamined / Math.max(this.#returned, 1) > scanRatio
    const all = [
      ...warnings,
      ...(isHigh ? [HIGH_SCAN] : []),
      ...(this.damaged > 0 ? [leftOut(this.damaged)] : []),
    ]
    if (all.length > 0) members.push(`"warning": ${JSON.stringify(all.join('\n'))}`)
    this.chunk.add(`\r\n],\r\n${members.join(',\r\n')}}\r\n`)
  }

  /** A document that CouchDB reads with a quorum counts in a member of its own. */
  #statistics(ms: number): object {
    const isQuorum = this.#request.r > 1
    return {
      total_keys_examined: this.keysExamined,
      total_docs_examined: isQuorum ? 0 : this.docsExamined,
      total_quorum_docs_examined: isQuorum ? this.docsExamined : 0,
      results_returned: this.#returned,
      execution_time_ms: Math.round(ms * 1000) / 1000,
    }
  }
}

function leftOut(damaged: number): string {
  const documents =
    damaged === 1 ? '1 document, which is damaged, was' : `${damaged} documents, which are damaged, were`
  return `${documents} left out.`
}

const HIGH_SCAN =
  'The number of documents examined is high in proportion to the number of results returned. ' +
  'Consider adding a more specific index to improve this.'
