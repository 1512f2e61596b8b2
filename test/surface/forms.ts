/** Answers that are more than one JSON: what a row may say of a feed, of a multipart answer, of gzip. */
import { gunzipSync } from 'node:zlib'
import { partsOf } from '../helpers/multipart-parts.ts'

export interface Forms {
  /** Of a feed of any kind: the ids of its rows. */
  readonly ids?: readonly string[]
  /** Of a continuous feed: the JSON of each of its lines; an empty line is ''. */
  readonly lines?: readonly unknown[]
  /** Of an event stream: the fields of each event; `data` and `id` as JSON. */
  readonly events?: readonly unknown[]
  /** Of a multipart answer: each part's headers, and its `content`: its JSON, its own parts, or its text. */
  readonly parts?: readonly unknown[]
  /** The text, where the body is gzip. */
  readonly gunzipped?: string
}

interface Found {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly bytes: Buffer
}

const READERS: { readonly [form in keyof Forms]-?: (found: Found) => unknown } = {
  ids: ({ bytes }) => [...bytes.toString().matchAll(/"id":"([^"]*)"/g)].map(([, id]) => id),
  lines: ({ bytes }) => textLines(bytes, '\n').map(jsonOf),
  events: ({ bytes }) => textLines(bytes, '\n\n').map(eventOf),
  parts: ({ headers, bytes }) => contentOf({ 'content-type': String(headers['content-type']) }, bytes),
  gunzipped: ({ bytes }) => gunzipSync(bytes).toString(),
}

/** The forms of which a row says something: the name of each, and what was found. */
export function formsOf(found: Found, expected: Forms): [form: string, found: unknown][] {
  const forms = Object.keys(READERS) as (keyof Forms)[]
  const named = forms.filter((form) => expected[form] !== undefined)
  return named.map((form) => [form, READERS[form](found)])
}

/** Without what follows the last end: where an answer was read `until` something, that may be a piece. */
function textLines(bytes: Buffer, end: string): string[] {
  return bytes.toString().split(end).slice(0, -1)
}

function jsonOf(line: string): unknown {
  return line === '' ? '' : (JSON.parse(line) as unknown)
}

function eventOf(text: string): Record<string, unknown> {
  const fields = text.split('\n').map((line): [string, unknown] => {
    const [, name = '', value = ''] = /^(\w*): ?(.*)$/.exec(line) ?? []
    return [name, name === 'event' ? value : jsonOf(value)]
  })
  return Object.fromEntries(fields)
}

function contentOf(headers: Readonly<Record<string, string>>, content: Buffer): unknown {
  const type = headers['content-type'] ?? ''
  if (type.startsWith('application/json')) return JSON.parse(content.toString())
  if (headers['content-encoding'] === 'gzip') return gunzipSync(content).toString()
  if (!type.startsWith('multipart/')) return content.toString()
  const parts = partsOf(type, content)
  return parts.map((part) => ({ ...part.headers, content: contentOf(part.headers, part.content) }))
}
