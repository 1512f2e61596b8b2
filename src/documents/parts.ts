/** A document and its attachments as the parts of one message: multipart/related, protocol.md 7.3. Pure. */
import { randomBytes } from 'node:crypto'
import type { AttachmentPart, OpenedParts } from './database.ts'
import type { Piece } from './pieces.ts'
import type { RenderedDocument } from './render.ts'

/** A boundary of 32 hex digits, which no content can foresee. */
export function newBoundary(): string {
  return randomBytes(16).toString('hex')
}

/**
 * A document with its attachments behind it, byte for byte as CouchDB frames it.
 * @param json the document's JSON, in which the attachments say `follows`
 * @param parts in the order of the JSON; their bytes are sent as they are stored
 */
export function relatedPieces(
  json: string | Uint8Array,
  parts: readonly AttachmentPart[],
  boundary: string,
): Piece[] {
  const between = `\r\n--${boundary}`
  return [
    `--${boundary}\r\nContent-Type: application/json\r\n\r\n`,
    json,
    between,
    ...parts.flatMap((part): Piece[] => [partHeader(part), { content: part, form: 'stored' }, between]),
    '--',
  ]
}

function partHeader({ name, type, storedLength, encoding }: AttachmentPart): string {
  const coding = encoding === null ? '' : `Content-Encoding: ${encoding}\r\n`
  return (
    `\r\nContent-Disposition: attachment; filename="${headerSafe(name).replaceAll('"', '%22')}"\r\n` +
    `Content-Type: ${headerType(type)}\r\nContent-Length: ${storedLength}\r\n${coding}\r\n`
  )
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not stand in a header
const CONTROL = /[\0-\x1f\x7f]/g

/**
 * A text for the header of a part: control characters are escaped like `%0D`, as HTML's own multipart/form-data
 * has it (there quotes are, too); what is not ASCII stays, as in CouchDB.
 */
export function headerSafe(text: string): string {
  return text.replace(
    CONTROL,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`,
  )
}

/** An attachment's type, where it can stand in the header of a part. */
export function headerType(type: string): string {
  return type === '' || headerSafe(type) !== type ? 'application/octet-stream' : type
}

/** A document's JSON with its attachments' contents in it as base64. */
export function inlinePieces({ texts, contents }: RenderedDocument): Piece[] {
  return texts.flatMap((text, at): Piece[] => {
    const content = contents[at]
    return content === undefined ? [text] : [text, { content, form: 'base64' }]
  })
}

/** The same of a document whose JSON is in bytes, with holes for the contents. */
export function filledPieces({ json, holes, parts }: OpenedParts): Piece[] {
  return [...holes, json.length].flatMap((end, at): Piece[] => {
    const text = json.subarray(at === 0 ? 0 : holes[at - 1], end)
    const content = parts[at]
    return content === undefined ? [text] : [text, { content, form: 'base64' }]
  })
}
