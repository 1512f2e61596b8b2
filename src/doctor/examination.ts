/** Who stands between the doctor and the database, as far as answers tell. */
import type { Address } from '../core/address.ts'
import { type Answer, headerOf } from './doctor-client.ts'
import type { Quote } from './finding.ts'

const PROXIES = ['nginx', 'Caddy', 'Traefik', 'Cloudflare'] as const
export type ProxyName = (typeof PROXIES)[number]

/** Servers with settings of their own that advice can name. */
export type ServerKind = 'settee' | 'CouchDB' | 'PouchDB Server'

export interface Stage {
  /** In the order in which their advice is shown. */
  readonly proxies: readonly ProxyName[]
  /** Whether an answer named them; otherwise they are all there are. */
  readonly isRecognised: boolean
  /** null: it does not say. */
  readonly server: ServerKind | null
}

type Heard = Pick<Answer, 'headers' | 'raw' | 'text' | 'json'>

/**
 * @param answers in any order; the first whose proxy is known counts
 * @returns all proxies where none is recognised. Cloudflare hides who else stands behind it, so it comes first and the
 *   others follow
 */
export function stageOf(answers: readonly Heard[]): Stage {
  const found = answers.map(proxyOf).find((each) => each !== null) ?? null
  const server = answers.map(serverOf).find((each) => each !== null) ?? null
  if (found === null) return { proxies: PROXIES, isRecognised: false, server }
  if (found !== 'Cloudflare') return { proxies: [found], isRecognised: true, server }
  return {
    proxies: [found, ...PROXIES.filter((each) => each !== found)],
    isRecognised: true,
    server,
  }
}

/** Traefik names itself nowhere, and is known by the texts of its own errors, which are Go's. */
function proxyOf(heard: Heard): ProxyName | null {
  const { headers, text } = heard
  const told = `${headerOf(heard, 'server')} ${headerOf(heard, 'via')}`
  if (headers['cf-ray'] !== undefined || /cloudflare/i.test(told)) return 'Cloudflare'
  if (/nginx|openresty/i.test(told)) return 'nginx'
  if (/caddy/i.test(told)) return 'Caddy'
  if (headers.server === undefined && /^(?:404 page not found|Bad Gateway|Gateway Timeout)\s*$/.test(text)) {
    return 'Traefik'
  }
  return null
}

function serverOf(heard: Heard): ServerKind | null {
  const { json } = heard
  const server = headerOf(heard, 'server')
  if (typeof json === 'object' && json !== null) {
    const { vendor } = json as { readonly vendor?: { readonly name?: unknown } }
    if (vendor?.name === 'settee') return 'settee'
    if ('express-pouchdb' in json) return 'PouchDB Server'
    if ('couchdb' in json) return 'CouchDB'
  }
  if (/\bsettee\//.test(server)) return 'settee'
  return /\bCouchDB\//.test(server) ? 'CouchDB' : null
}

/** What a finding needs to know beside its own facts. */
export interface Scene {
  readonly address: Address
  /** With the demands of phones. */
  readonly mobile: boolean
  readonly stage: Stage
  readonly quote: Quote
}
