/** Who stands between the doctor and the database, as far as answers tell. */
import type { Answer } from './client.ts'

export const PROXIES = ['nginx', 'Caddy', 'Traefik', 'Cloudflare'] as const
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

type Heard = Pick<Answer, 'headers' | 'text' | 'json'>

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
function proxyOf({ headers, text }: Heard): ProxyName | null {
  const told = [headers.server, headers.via].flat().join(' ')
  if (headers['cf-ray'] !== undefined || /cloudflare/i.test(told)) return 'Cloudflare'
  if (/nginx|openresty/i.test(told)) return 'nginx'
  if (/caddy/i.test(told)) return 'Caddy'
  if (headers.server === undefined && /^(?:404 page not found|Bad Gateway|Gateway Timeout)\s*$/.test(text)) {
    return 'Traefik'
  }
  return null
}

function serverOf({ headers, json }: Heard): ServerKind | null {
  const server = [headers.server].flat().join(' ')
  if (typeof json === 'object' && json !== null) {
    const { vendor } = json as { readonly vendor?: { readonly name?: unknown } }
    if (vendor?.name === 'settee') return 'settee'
    if ('express-pouchdb' in json) return 'PouchDB Server'
    if ('couchdb' in json) return 'CouchDB'
  }
  if (/\bsettee\//.test(server)) return 'settee'
  return /\bCouchDB\//.test(server) ? 'CouchDB' : null
}
