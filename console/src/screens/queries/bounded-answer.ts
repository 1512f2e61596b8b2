/** Answers that the page must not let grow without bound. */
import { type CallOptions, send } from '../../api/client.ts'
import { Failure } from '../../api/failure.ts'
import { en } from '../../strings/en.ts'

/** In bytes. */
const MAX_BYTES = 16_000_000

/**
 * Reads the text of an answer, at most 16 MB of it.
 * @throws Failure, also for a longer answer; an AbortError when the signal aborts
 */
export async function askBoundedText(path: string, options: CallOptions): Promise<string> {
  const answer = await send(path, options)
  const requestId = answer.headers.get('x-couch-request-id')
  const decoder = new TextDecoder()
  const parts: string[] = []
  let bytes = 0
  try {
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader()
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      const piece = next.value
      bytes += piece.length
      if (bytes > MAX_BYTES) {
        await reader.cancel()
        throw new Failure(0, 'too_large', en.queries.tooLarge, requestId)
      }
      parts.push(decoder.decode(piece, { stream: true }))
    }
  } catch (error) {
    if (error instanceof Failure || (error instanceof DOMException && error.name === 'AbortError'))
      throw error
    throw new Failure(0, 'unreachable', en.common.answerCut, requestId, error)
  }
  return parts.join('') + decoder.decode()
}
