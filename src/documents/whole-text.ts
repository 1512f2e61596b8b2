/** The JSON of a document with the contents of its attachments, as one text. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { DocumentReader } from './database.ts'
import { inlinePieces, pieceChunks, piecesLength } from './pieces.ts'
import type { RenderedDocument } from './render.ts'
import { type ReadContent, readContent } from './stored-content.ts'

/** Maximum number of bytes of such a text: the longest string has fewer than 512 MiB. */
export const MAX_WHOLE_BYTES = 256 * 1024 * 1024

/**
 * Reads the contents of a rendered document in steps, and fills them in as base64.
 * @throws attachment_too_large if they do not fit into one text; no_attachment if one is not stored any more
 */
export async function wholeText(store: DocumentReader, document: RenderedDocument): Promise<string> {
  const [first] = document.contents
  if (first === undefined) return document.texts.join('')
  const pieces = inlinePieces(document)
  if (piecesLength(pieces) > MAX_WHOLE_BYTES) throw new CouchError('attachment_too_large', first.name)
  const read: ReadContent = (content, start, end) => readContent(store, content, start, end)
  const chunks: Uint8Array[] = []
  const yielder = new Yielder()
  for await (const chunk of pieceChunks(pieces, read)) {
    chunks.push(chunk)
    await yielder.yieldIfDue()
  }
  return Buffer.concat(chunks).toString()
}
