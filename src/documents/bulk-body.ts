/** The documents in the body of `_bulk_docs`, protocol.md 4.1. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/yielder.ts'
import {
  decodeUtf8,
  parseJson,
  type SplitDocument,
  type SplitElement,
  splitAnyDocument,
  splitElement,
} from './body.ts'
import type { Body } from './database.ts'
import { bodyBytes, bodyLength, bodyText, MAX_TEXT_BYTES } from './request-body.ts'
import { SpanScanner, type Spans } from './spans.ts'

/** Bytes looked through in one step. */
const SLICE = 256 * 1024
/** Of all members beside the documents: each is parsed in one turn. */
const MAX_OTHER_BYTES = 64 * 1024

export interface BulkBody {
  readonly newEdits: boolean
  /** Asked for something that nobody has done since CouchDB 2. */
  readonly allOrNothing: boolean
  /** How many documents there are. */
  readonly count: number
  /** Whether the body is small enough to be held in memory. */
  readonly isInMemory: boolean
  /** About the bytes that a document takes. */
  size(at: number): number
  /** At once, unless it is long. @throws what splitDocument throws */
  split(at: number): SplitDocument | Promise<SplitDocument>
}

/**
 * Finds the documents of a body.
 * @param maxDocs how many there may be
 * @throws bad_request, invalid_json, body_not_object, document_too_large, too_large, too_deep for what stands beside
 * them; bulk_docs_count
 */
export async function readBulkBody(body: Body, maxDocs: number): Promise<BulkBody> {
  return (await readPlainBulk(body, maxDocs)) ?? readAnyBulk(body, maxDocs)
}

/** The longest body that is read in one pass: so much text is made of it at once, and held beside its bytes. */
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
 * A body as replicators send it, `{"docs":[{...},{...}],"new_edits":false}`, its documents found and taken apart in
 * one pass: 2 us less for each than by their spans. null for any other, also for one with a fault in it, which
 * {@link readAnyBulk} tells.
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

/** Documents, one at least, up to where no comma follows. */
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

/** Any body: its documents' spans first, each document when it is asked for. */
export async function readAnyBulk(body: Body, maxDocs: number = Number.POSITIVE_INFINITY): Promise<BulkBody> {
  const spans = await findSpans(body, maxDocs)
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
    split: (at) => splitAnyDocument(bodyText(body, starts[at], ends[at])),
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

/** A `docs` that a later one of the same name has replaced must still be JSON. */
async function checkReplaced(body: Body, { replaced }: Spans): Promise<void> {
  const yielder = new Yielder()
  for (let at = 0; at < replaced.count; at++) {
    parseJson(bodyText(body, replaced.starts[at], replaced.ends[at]))
    await yielder.yieldIfDue()
  }
}
