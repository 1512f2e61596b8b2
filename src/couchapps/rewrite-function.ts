/** Rewrites by a function: the result of the function, and the request or the answer that it stands for; protocol.md 9.6. Pure. */
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { HTML, readAnswerHeaders, readHeaders } from './app-response.ts'
import { encode, type RewriteRequest, resolveAddress } from './rewrite-rules.ts'

/** What happens to a request for `_rewrite`. */
export type Rewrite =
  /** The function must run, and needs the object `req`. */
  | { readonly type: 'function' }
  /** Another request is served in its place. */
  | {
      readonly type: 'request'
      readonly address: string
      /** Absent: the method, the headers and the body of the request itself. */
      readonly method?: string
      readonly headers?: Readonly<Record<string, string>>
      readonly body?: string
    }
  /** It is answered by the function. */
  | {
      readonly type: 'answer'
      readonly status: number
      readonly headers: readonly (readonly [name: string, value: string])[]
      /** Null: the body of the request. */
      readonly body: string | null
    }

/** The methods that the server routes. */
const METHOD = /^(?:GET|HEAD|POST|PUT|DELETE|COPY|PATCH|OPTIONS|TRACE)$/

/**
 * @param target what the function has returned, not null
 * @throws rewrite_error, with CouchDB's texts; insecure_rewrite_rule
 */
export function readRewrite(target: unknown, request: RewriteRequest): Rewrite {
  if (!isJsonObject(target)) throw bad('bad rewrite')
  const { method, path, body, headers, query: newQuery, code } = target
  if (method !== undefined && typeof method !== 'string') throw bad('bad method')
  if (path !== undefined && typeof path !== 'string') throw bad('bad path')
  if (body !== undefined && typeof body !== 'string') throw bad('bad body')
  if (headers !== undefined && !isTextObject(headers)) throw bad('bad headers')
  if (newQuery !== undefined && !isTextObject(newQuery)) throw bad('bad query')
  if (code !== undefined) {
    const isStatus = typeof code === 'number' && Number.isInteger(code) && code >= 200 && code < 600
    if (!isStatus) throw bad('bad code')
    // CouchDB sends no type, and browsers show HTML as such.
    return {
      type: 'answer',
      status: code,
      headers: readAnswerHeaders(headers ?? {}, HTML),
      body: body ?? null,
    }
  }
  if (path === undefined) throw bad('Rewrite result must produce a new path.')
  if (method !== undefined && !METHOD.test(method)) throw bad('bad method')
  const parameters = newQuery === undefined ? request.query : Object.entries(newQuery)
  const text = parameters.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&')
  const address = resolveAddress(request, path)
  return {
    type: 'request',
    address: text === '' ? address : `${address}?${text}`,
    ...(method !== undefined && { method }),
    ...(headers !== undefined && { headers: Object.fromEntries(readHeaders(headers)) }),
    ...(body !== undefined && { body }),
  }
}

function isTextObject(value: unknown): value is Record<string, string> {
  return isJsonObject(value) && Object.values(value).every((each) => typeof each === 'string')
}

function bad(reason: string): CouchError {
  return new CouchError('rewrite_error', reason)
}
