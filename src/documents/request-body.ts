/**
 * Reads the body of a request, in memory or in a file: as bytes, as text, as a JSON object, or as the documents of
 * `_bulk_docs`. Long bodies are read in steps.
 */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { Limits } from '../core/types.ts'
import {
  type DocumentText,
  decodeUtf8,
  parseJson,
  type SplitDocument,
  type SplitElement,
  splitDocumentText,
  splitElement,
} from './body.ts'
import type { Body } from './database.ts'
import { isSuspect, requireLength } from './document-length.ts'
import { checkObject, checkSchema, JsonParser, type Schema } from './json-parser.ts'
import { type ContentRanges, LeftContents } from './left-contents.ts'
import { SpanScanner, type Spans } from './spans.ts'
import { type FileBody, readFileBytes } from './temporary-file.ts'

/** The longest JSON that is read as one text: V8's maximum is 512 MB, and the answer also needs space. */
const MAX_TEXT_BYTES = 400_000_000

export function bodyLength(body: Body): number {
  return 'bytes' in body ? body.bytes.length : body.length
}

/** A range of the body; it is not copied if the body is in memory. */
export function bodyBytes(body: Body, start: number, end: number): Uint8Array {
  if ('bytes' in body) return body.bytes.subarray(start, end)
  return readFileBytes(body, Buffer.allocUnsafe(end - start), start)
}

/**
 * A range of the body in steps. Each step is valid until the next is requested.
 * @param step the length of each step except the last, in bytes
 */
export function* bodySteps(body: Body, start: number, end: number, step: number): Generator<Uint8Array> {
  const memory = memoryFor(body, Math.min(step, end - start))
  for (let at = start; at < end; at += step) yield rangeBytes(body, at, Math.min(at + step, end), memory)
}

/** A body in memory needs no memory for its steps. */
function memoryFor(body: Body, bytes: number): Buffer {
  return Buffer.allocUnsafeSlow('bytes' in body ? 0 : bytes)
}

/** @param memory the buffer for a body in a file */
function rangeBytes(body: Body, start: number, end: number, memory: Buffer): Uint8Array {
  return 'bytes' in body ? body.bytes.subarray(start, end) : readInto(memory, body, start, end)
}

/**
 * Reads a range of a body in a file into reusable memory. Otherwise a large upload would leave hundreds of megabytes
 * for the garbage collector.
 */
export function readInto(memory: Buffer, body: FileBody, start: number, end: number): Buffer {
  return readFileBytes(body, memory.subarray(0, end - start), start)
}

/** A range of the body as text. @throws invalid_json if it is not UTF-8, document_too_large */
export function bodyText(body: Body, start = 0, end = bodyLength(body)): string {
  if (end - start > MAX_TEXT_BYTES) throw new CouchError('document_too_large')
  return decodeUtf8(bodyBytes(body, start, end))
}

/** A shorter document is read from a file with the contents of its attachments. */
const MAX_WITH_CONTENTS = 1024 * 1024

/**
 * A document's text. One that is too large is refused before it is decoded. A long one in a file is read without the
 * contents of its attachments, which take as much memory again when they are decoded.
 * @param name of the document, for the refusal
 * @returns no promise for a short text
 * @throws as {@link bodyText}; document_too_large
 */
export function documentText(
  body: Body,
  limits: Pick<Limits, 'maxDocumentSize'>,
  name = '',
  start = 0,
  end = bodyLength(body),
): DocumentText | Promise<DocumentText> {
  const length = end - start
  const hasContents = 'file' in body && length > MAX_WITH_CONTENTS
  if (!hasContents && !isSuspect(length, limits)) return { text: bodyText(body, start, end) }
  if (length > MAX_TEXT_BYTES) throw new CouchError('document_too_large')
  return requireLength(bodySteps(body, start, end, SLICE), limits, name).then((ranges) =>
    'file' in body ? textWithout(body, start, end, ranges) : { text: bodyText(body, start, end) },
  )
}

/** Reads a document from a file, and leaves contents there. @param ranges of the contents, from `start` on */
async function textWithout(
  body: FileBody,
  start: number,
  end: number,
  { starts, ends }: ContentRanges,
): Promise<DocumentText> {
  let memory = Buffer.alloc(0)
  const contents = new LeftContents({ starts, ends }, (from, to) => {
    if (memory.length < to - from) memory = Buffer.allocUnsafeSlow(to - from)
    return readInto(memory, body, start + from, start + to).toString('latin1')
  })
  const left = ends.reduce((sum, last, at) => sum + last - (starts[at] as number), 0)
  const bytes = Buffer.allocUnsafeSlow(end - start - left + starts.length * contents.nameLength)
  const yielder = new Yielder()
  let filled = 0
  let from = start
  const copyUntil = (to: number) => {
    readFileBytes(body, bytes.subarray(filled, filled + to - from), from)
    filled += to - from
  }
  for (const [at, first] of starts.entries()) {
    copyUntil(start + first)
    filled += bytes.write(contents.nameOf(at), filled, 'latin1')
    from = start + (ends[at] as number)
    if (yielder.isDue) await yielder.yieldIfDue()
  }
  copyUntil(end)
  await contents.check(yielder)
  return { text: decodeUtf8(bytes), contents }
}

/**
 * A longer body is parsed in slices. The worst case of twice this size took JSON.parse and the checks 5 to 14 ms on a
 * busy machine.
 */
const MAX_AT_ONCE = 32 * 1024
/** The longest body of a request without documents, for instance 100,000 ids of 160 bytes. */
const MAX_OBJECT_BYTES = 16 * 1024 * 1024
/** Maximum number of JSON values in such a body, counting each list, object, string and number. */
const MAX_VALUES = 200_000
/** Bytes decoded in one step. */
const DECODE_STEP = 512 * 1024

/**
 * The whole body as a JSON object. A long body is parsed in slices of a few milliseconds.
 * @param schema the schema of the body
 * @param maxBytes maximum length of the body
 * @throws invalid_json, body_not_object, too_deep, too_large; and the errors of the schema
 */
export async function bodyObject(
  body: Body,
  schema: Omit<Schema, 'check'> = {},
  maxBytes: number = MAX_OBJECT_BYTES,
): Promise<Record<string, unknown>> {
  const length = bodyLength(body)
  if (length > maxBytes) {
    const reason = `the request entity is too large: the limit of this call is ${maxBytes} bytes`
    throw new CouchError('too_large', reason)
  }
  const whole = { ...schema, check: checkObject }
  if (length > MAX_AT_ONCE) return (await parseInSlices(body, whole)) as Record<string, unknown>
  const value = parseJson(bodyText(body))
  checkSchema(value, whole)
  return value as Record<string, unknown>
}

async function parseInSlices(body: Body, schema: Schema): Promise<unknown> {
  const yielder = new Yielder()
  const parser = new JsonParser(await decodeInSteps(body, yielder), schema, MAX_VALUES)
  while (!parser.advance(() => yielder.isDue)) await yielder.yieldNow()
  return parser.value
}

async function decodeInSteps(body: Body, yielder: Yielder): Promise<string> {
  const length = bodyLength(body)
  const memory = memoryFor(body, Math.min(DECODE_STEP, length))
  let text = ''
  for (let at = 0; at < length; ) {
    const bytes = rangeBytes(body, at, Math.min(at + DECODE_STEP, length), memory)
    const end = at + bytes.length === length ? bytes.length : characterStart(bytes)
    text += decodeUtf8(bytes.subarray(0, end))
    at += end
    await yielder.yieldIfDue()
  }
  return text
}

/** The start of the last character in a range of UTF-8. */
function characterStart(bytes: Uint8Array): number {
  let at = bytes.length - 1
  while (at > bytes.length - 4 && ((bytes[at] as number) & 0xc0) === 0x80) at -= 1
  return at
}

/** Bytes scanned in one step. */
const SLICE = 256 * 1024
/** Maximum bytes of all members other than the documents, since each is parsed in one turn. */
const MAX_OTHER_BYTES = 64 * 1024

export interface BulkBody {
  readonly newEdits: boolean
  /** The request asks for a mode that CouchDB removed in version 2. */
  readonly allOrNothing: boolean
  /** The number of documents. */
  readonly count: number
  /** Whether the body is in memory, so that its documents can be kept. */
  readonly isInMemory: boolean
  /** The approximate bytes of a document. */
  size(at: number): number
  /** Synchronous unless the document is long. @throws as splitDocument */
  split(at: number): SplitDocument | Promise<SplitDocument>
}

type BulkLimits = Pick<Limits, 'maxBulkDocs' | 'maxDocumentSize'>

const UNLIMITED: BulkLimits = {
  maxBulkDocs: Number.POSITIVE_INFINITY,
  maxDocumentSize: Number.POSITIVE_INFINITY,
}

/**
 * Finds the documents in the body of `_bulk_docs`, protocol.md 4.1.
 * @throws bulk_docs_count; bad_request, invalid_json, body_not_object, document_too_large, too_large, too_deep for
 * members other than the documents
 */
export async function readBulkBody(body: Body, limits: BulkLimits): Promise<BulkBody> {
  return (await readPlainBulk(body, limits.maxBulkDocs)) ?? readAnyBulk(body, limits)
}

/** The longest body that is read in one pass. Its whole text is decoded and kept in addition to its bytes. */
const MAX_PLAIN_BYTES = 1024 * 1024

const SPACE = '[ \\t\\n\\r]*'
const token = (...texts: string[]) => texts.map((text) => `${SPACE}${text}`).join('')
const NEW_EDITS = token('"new_edits"', ':', '(true|false)')
const BEGINNING = new RegExp(
  `${token('\\{')}(?:${NEW_EDITS}${token(',')})?${token('"docs"', ':', '\\[')}${SPACE}`,
  'y',
)
const NEXT = new RegExp(`${SPACE},${SPACE}`, 'y')
const END = new RegExp(`${token('\\]')}(?:${token(',')}${NEW_EDITS})?${token('\\}')}${SPACE}$`, 'y')

/**
 * Reads a body as replicators send it, `{"docs":[{...},{...}],"new_edits":false}`. Finding and splitting its documents
 * in one pass saves 2 us per document. Returns null for any other body, and for a body with an error, which {@link
 * readAnyBulk} reports.
 */
export async function readPlainBulk(
  body: Body,
  maxDocs: number = Number.POSITIVE_INFINITY,
): Promise<BulkBody | null> {
  if (!('bytes' in body) || body.bytes.length > MAX_PLAIN_BYTES) return null
  try {
    return await plainBulk(decodeUtf8(body.bytes), maxDocs)
  } catch (error) {
    if (error instanceof CouchError) return null
    throw error
  }
}

async function plainBulk(text: string, maxDocs: number): Promise<BulkBody | null> {
  BEGINNING.lastIndex = 0
  const beginning = BEGINNING.exec(text)
  if (beginning === null) return null
  const docs = await splitElements(text, BEGINNING.lastIndex, maxDocs)
  END.lastIndex = (docs.at(-1) as SplitElement).end
  const ending = END.exec(text)
  if (ending === null) return null
  return {
    newEdits: (ending[1] ?? beginning[1] ?? 'true') === 'true',
    allOrNothing: false,
    count: docs.length,
    isInMemory: true,
    size: (at) => (docs[at] as SplitElement).end - (docs[at] as SplitElement).start,
    split: (at) => docs[at] as SplitElement,
  }
}

/** Splits documents, at least one, until no comma follows. */
async function splitElements(text: string, start: number, maxDocs: number): Promise<SplitElement[]> {
  const docs: SplitElement[] = []
  const yielder = new Yielder()
  for (let at = start; ; at = NEXT.lastIndex) {
    if (yielder.isDue) await yielder.yieldIfDue()
    const split = splitElement(text, at, yielder)
    const doc = split instanceof Promise ? await split : split
    docs.push(doc)
    NEXT.lastIndex = doc.end
    if (!NEXT.test(text)) return docs
    if (docs.length === maxDocs) throw new CouchError('bulk_docs_count', String(maxDocs))
  }
}

/** Reads any body: finds the documents' spans first, and splits each document when it is requested. */
export async function readAnyBulk(body: Body, limits: BulkLimits = UNLIMITED): Promise<BulkBody> {
  const spans = await findSpans(body, limits.maxBulkDocs)
  const others = new Map([...spans.others].map(([name, text]) => [name, parseJson(text)]))
  if (!spans.arrayFound) {
    if (spans.memberOther === undefined) {
      throw new CouchError('bad_request', 'POST body must include `docs` parameter.')
    }
    parseJson(spans.memberOther)
    throw new CouchError('bad_request', '`docs` parameter must be an array.')
  }
  const newEdits = others.has('new_edits') ? others.get('new_edits') : true
  if (typeof newEdits !== 'boolean') {
    throw new CouchError('bad_request', '`new_edits` parameter must be a boolean.')
  }
  await checkReplaced(body, spans)
  const { starts, ends, count } = spans
  return {
    newEdits,
    allOrNothing: others.get('all_or_nothing') === true,
    count,
    isInMemory: 'bytes' in body,
    size: (at) => (ends[at] as number) - (starts[at] as number),
    split: (at) => {
      const read = documentText(body, limits, '', starts[at], ends[at])
      return read instanceof Promise ? read.then(splitDocumentText) : splitDocumentText(read)
    },
  }
}

async function findSpans(body: Body, maxSpans: number): Promise<Spans> {
  const limits = { maxSpan: MAX_TEXT_BYTES, maxOther: MAX_OTHER_BYTES, maxSpans }
  const scanner = new SpanScanner({ member: 'docs', ...limits })
  const yielder = new Yielder()
  const length = bodyLength(body)
  for (let at = 0; at < length; at += SLICE) {
    scanner.push(bodyBytes(body, at, Math.min(at + SLICE, length)))
    await yielder.yieldIfDue()
  }
  return scanner.end()
}

/** Maximum bytes of such a document, since each is parsed in one turn. */
const MAX_REPLACED = 512 * 1024

/** A `docs` that a later member of the same name replaced must still be JSON. */
async function checkReplaced(body: Body, { replaced }: Spans): Promise<void> {
  const yielder = new Yielder()
  for (let at = 0; at < replaced.count; at++) {
    const [start = 0, end = 0] = [replaced.starts[at], replaced.ends[at]]
    if (end - start > MAX_REPLACED) throw new CouchError('document_too_large')
    parseJson(bodyText(body, start, end))
    await yielder.yieldIfDue()
  }
}
