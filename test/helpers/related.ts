/** Makes multipart/related bodies as clients send them; protocol.md 7.2. */
import { createHash } from 'node:crypto'

export interface RelatedPart {
  readonly content: Uint8Array | string
  readonly headers?: Readonly<Record<string, string>>
}

/** The body of a document and the parts that follow it. */
export function related(boundary: string, doc: unknown, parts: readonly RelatedPart[]): Buffer {
  const json = typeof doc === 'string' ? doc : JSON.stringify(doc)
  const all = [{ content: json, headers: { 'Content-Type': 'application/json' } }, ...parts]
  const pieces = all.flatMap(({ content, headers = {} }) => [
    Buffer.from(`\r\n--${boundary}\r\n`),
    Buffer.from(
      Object.entries(headers)
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join(''),
    ),
    Buffer.from('\r\n'),
    Buffer.from(content),
  ])
  return Buffer.concat([...pieces, Buffer.from(`\r\n--${boundary}--`)])
}

/** The headers of a part that names its attachment. */
export function named(name: string): { headers: Record<string, string> } {
  return { headers: { 'Content-Disposition': `attachment; filename="${name}"` } }
}

/** The entry in `_attachments` of an attachment that follows as a part. */
export function follows(content: Uint8Array | string, more: Record<string, unknown> = {}) {
  return { follows: true, content_type: 'text/plain', length: Buffer.byteLength(content), ...more }
}

export function md5(content: Uint8Array | string): string {
  return `md5-${createHash('md5').update(content).digest('base64')}`
}
