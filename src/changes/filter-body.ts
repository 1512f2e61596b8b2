/** The body of a POST to `_changes`, on the database's thread; protocol.md 5.1. */
import { CouchError } from '../core/errors.ts'
import type { Body } from '../documents/database.ts'
import type { Shape } from '../documents/json-parser.ts'
import { bodyLength, bodyObject, bodyText } from '../documents/request-body.ts'

/** What filters take from a body. Members that it does not have are absent. */
export interface FilterBody {
  /** When it is a list of strings. */
  readonly docIds?: readonly string[]
  /** JSON text. */
  readonly selector?: string
  /** Whatever it is. */
  readonly fields?: unknown
  /** The whole JSON text; only where it was asked for. */
  readonly text?: string
}

/** Ids go to the database's thread with each page, and are looked up for each. */
const MAX_DOC_IDS = 50_000
/** Selectors are compiled again and again, and bodies go to functions with each batch. */
const MAX_TEXT = 1024 * 1024

const SHAPE: Shape = {
  members: {
    doc_ids: { maxCount: MAX_DOC_IDS },
    selector: { maxLength: MAX_TEXT, tooLong: selectorTooLong },
  },
  others: { maxLength: MAX_TEXT },
}

/**
 * @param withText whether the whole text is wanted, for a filter function's `req.body`
 * @throws invalid_json, body_not_object, too_large; invalid_filter for a selector that is too long
 */
export async function readFilterBody(body: Body, withText: boolean): Promise<FilterBody> {
  if (withText && bodyLength(body) > MAX_TEXT) throw tooLarge('too_large', 'the request body')
  const { doc_ids: ids, selector, fields } = await bodyObject(body, SHAPE)
  const docIds = asDocIds(ids)
  return {
    ...(docIds !== undefined && { docIds }),
    ...(selector !== undefined && { selector: selectorText(selector) }),
    ...(fields !== undefined && { fields }),
    ...(withText && { text: bodyText(body) }),
  }
}

function selectorText(selector: unknown): string {
  const text = JSON.stringify(selector)
  if (text.length > MAX_TEXT) throw selectorTooLong()
  return text
}

function selectorTooLong(): CouchError {
  return tooLarge('invalid_filter', 'Selector error: the selector')
}

function tooLarge(code: 'too_large' | 'invalid_filter', what: string): CouchError {
  return new CouchError(code, `${what} is longer than ${MAX_TEXT} bytes`)
}

/** A value as a list of document ids; undefined when it is none. */
export function asDocIds(value: unknown): readonly string[] | undefined {
  return Array.isArray(value) && value.every((id) => typeof id === 'string') ? value : undefined
}
