/**
 * What a browser may do with an answer. Databases share an origin with the console, so a page from a database could act for
 * the person who opens it. The headers are set where each head is written: no route, no function of a design document and
 * no header of a request can leave them out.
 */
import { createRequire } from 'node:module'
import type { FastifyReply } from 'fastify'

// `import` reads all exports of node:http, which loads Node's fetch: 2 MB.
const { ServerResponse }: typeof import('node:http') = createRequire(import.meta.url)('node:http')

const POLICY = Symbol('page policy')
/** CouchDB's own policy for what databases hold: no scripts, no forms, an origin of its own. */
const SANDBOX = 'sandbox'
const CSP = 'content-security-policy'
const CONTENT_TYPE_OPTIONS = 'x-content-type-options'

interface Guarded {
  /** Absent: {@link SANDBOX}. Null: the answer may be a page without limits, or is none. */
  [POLICY]?: string | null
}

/** The types of what settee itself writes. With `nosniff`, browsers show them as text and run none of them. */
export type OwnType = 'application/json' | 'application/x-ndjson' | 'text/event-stream'

/** Says that settee has made the bytes and the type, which browsers do not run: the answer needs no sandbox. */
export function needsNoSandbox(answer: object): void {
  setPolicy(answer, null)
}

function setPolicy(answer: Guarded, policy: string | null): void {
  answer[POLICY] = policy
}

/** The kinds of pages whose policy CouchDB lets the server's admin change. */
type Configured = 'attachments' | 'showlist' | 'utils'

/** Sets the policy that section `[csp]` gives to answers of this kind. */
export function useConfiguredPolicy(reply: FastifyReply, kind: Configured, preset = SANDBOX): void {
  const { config } = reply.server.services
  const isOn = config.boolean('csp', `${kind}_enable`)
  setPolicy(reply.raw as Guarded, isOn ? config.get('csp', `${kind}_header_value`) || preset : null)
}

/** Completes the headers of an answer, in place. */
export function guardHeaders(answer: object, headers: Record<string, unknown>): void {
  const { [POLICY]: policy = SANDBOX } = answer as Guarded
  for (const name of Object.keys(headers)) if (isGuarded(name, policy)) delete headers[name]
  if (policy !== null) headers[CSP] = policy
  headers[CONTENT_TYPE_OPTIONS] = 'nosniff'
}

function isGuarded(name: string, policy: string | null): boolean {
  if (name.length === CONTENT_TYPE_OPTIONS.length) return name.toLowerCase() === CONTENT_TYPE_OPTIONS
  return policy !== null && name.length === CSP.length && name.toLowerCase() === CSP
}

type WriteHead = (status: number, ...rest: readonly unknown[]) => unknown

/** An answer over HTTP/1; `http2-messages.ts` has that over HTTP/2. Node itself calls `writeHead` if nobody else does. */
export class GuardedResponse extends ServerResponse {
  override writeHead(status: number, ...rest: readonly unknown[]): this {
    const given = rest.at(-1)
    const isList = Array.isArray(given)
    const headers = typeof given === 'object' && given !== null && !isList ? given : {}
    guardHeaders(this, headers as Record<string, unknown>)
    if (headers !== given) for (const [name, value] of Object.entries(headers)) this.setHeader(name, value)
    const writeHead = super.writeHead as WriteHead
    writeHead.call(this, status, ...rest)
    return this
  }
}
