/** A small reader of multipart messages, for tests. It shares no code with src/. */
export interface MultipartPart {
  readonly headers: Readonly<Record<string, string>>
  readonly content: Buffer
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
}

/** The boundary in a content type. */
export function boundaryOf(contentType: unknown): string {
  const found = /;\s*boundary=(?:"([^"]+)"|([^\s;]+))/.exec(String(contentType))
  const boundary = found?.[1] ?? found?.[2]
  if (boundary === undefined) throw new Error(`no boundary in ${String(contentType)}`)
  return boundary
}

/** The parts of a message. @param type has the boundary @throws if the message breaks RFC 2046 5.1 */
export function partsOf(contentType: unknown, message: Uint8Array): MultipartPart[] {
  const delimiter = `\r\n--${boundaryOf(contentType)}`
  // With a line break in front, the first delimiter looks like the others.
  const [preamble, ...pieces] = `\r\n${Buffer.from(message).toString('latin1')}`.split(delimiter)
  const end = pieces.pop()
  if (preamble?.trim() !== '' || !/^--(\r\n)?$/.test(end ?? '')) throw new Error('not framed as multipart')
  return pieces.map(part)
}

function part(piece: string): MultipartPart {
  const split = piece.indexOf('\r\n\r\n')
  if (!piece.startsWith('\r\n') || split === -1) throw new Error('a part without headers')
  const lines = Buffer.from(piece.slice(2, Math.max(2, split)), 'latin1')
    .toString()
    .split('\r\n')
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const [name = '', ...value] = line.split(': ')
    headers[name.toLowerCase()] = value.join(': ')
  }
  const content = Buffer.from(piece.slice(split + 4), 'latin1')
  return { headers, content, text: content.toString(), json: parsed(content) }
}

function parsed(content: Buffer): unknown {
  try {
    return JSON.parse(content.toString())
  } catch {
    return undefined
  }
}
