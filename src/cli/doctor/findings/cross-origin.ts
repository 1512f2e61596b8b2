/** What the headers of CORS on one answer are worth to a page, as browsers read them. */
import { type Answer, isAnswer, type Reply } from '../client.ts'

/** Why a browser keeps an answer from a page; null: it does not. */
export type CorsFault =
  | { readonly kind: 'failed' | 'missing' | 'doubled' | 'star' | 'credentials' }
  | { readonly kind: 'other'; readonly allowed: string }
  | { readonly kind: 'methods' | 'headers'; readonly lacking: readonly string[] }
  | { readonly kind: 'status'; readonly status: number }

/** What replication sends: PouchDB's requests are none of the simple ones. */
export const ASKED_METHODS = ['PUT', 'POST', 'DELETE'] as const
export const ASKED_HEADERS = ['authorization', 'content-type'] as const

/** GET, HEAD and POST pass without being listed (Fetch standard 4.8). */
const SAFELISTED: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST'])

/** @returns what is wrong with an answer to a request of a page's with credentials */
export function corsFault(reply: Reply, origin: string): CorsFault | null {
  if (!isAnswer(reply)) return { kind: 'failed' }
  const allowed = valuesOf(reply, 'access-control-allow-origin')
  const [first] = allowed
  if (first === undefined) return { kind: 'missing' }
  if (allowed.length > 1) return { kind: 'doubled' }
  if (first === '*') return { kind: 'star' }
  if (first !== origin) return { kind: 'other', allowed: first }
  const credentials = valuesOf(reply, 'access-control-allow-credentials')
  if (credentials.length > 1) return { kind: 'doubled' }
  return credentials[0] === 'true' ? null : { kind: 'credentials' }
}

/** The same of a preflight, which must also allow what is to be sent. */
export function preflightFault(reply: Reply, origin: string): CorsFault | null {
  const fault = corsFault(reply, origin)
  if (fault !== null || !isAnswer(reply)) return fault
  if (reply.status < 200 || reply.status > 299) return { kind: 'status', status: reply.status }
  const methods = valuesOf(reply, 'access-control-allow-methods')
  const noMethods = ASKED_METHODS.filter((each) => !SAFELISTED.has(each) && !methods.includes(each))
  if (noMethods.length > 0) return { kind: 'methods', lacking: noMethods }
  const headers = valuesOf(reply, 'access-control-allow-headers').map((each) => each.toLowerCase())
  const noHeaders = ASKED_HEADERS.filter((each) => !headers.includes(each))
  return noHeaders.length > 0 ? { kind: 'headers', lacking: noHeaders } : null
}

/** A header sent twice and one with a comma are the same. */
function valuesOf({ raw }: Answer, name: string): string[] {
  return raw
    .filter(([each]) => each === name)
    .flatMap(([, value]) => value.split(','))
    .map((value) => value.trim())
    .filter((value) => value !== '')
}
