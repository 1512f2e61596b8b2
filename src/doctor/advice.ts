/**
 * Detects the proxy and the server that answer, and names the setting to change in each of them for each fault. Also runs in
 * the console.
 */
import type { Address } from '../core/address.ts'
import { APP_ORIGINS } from '../core/app-origins.ts'
import type { Answer } from './doctor-client.ts'
import type { Cure, Quote } from './finding.ts'

const PROXIES = ['nginx', 'Caddy', 'Traefik', 'Cloudflare'] as const
type ProxyName = (typeof PROXIES)[number]

/** Servers with their own advice. */
type ServerKind = 'settee' | 'CouchDB' | 'PouchDB Server'

/** The proxies in front of the server, and the server itself. */
export interface DetectedStack {
  /** In the order of their advice. */
  readonly proxies: readonly ProxyName[]
  /** Whether an answer named the proxy; otherwise `proxies` has all of them. */
  readonly isRecognised: boolean
  /** null: unknown. */
  readonly server: ServerKind | null
}

type ReceivedAnswer = Pick<Answer, 'raw' | 'text' | 'json'>

/** @returns all values of a header, as a page sees them: Node keeps only the first `Server`, and Caddy sends two */
export function headerOf({ raw }: Pick<Answer, 'raw'>, name: string): string {
  return raw.flatMap(([each, value]) => (each === name ? [value] : [])).join(', ')
}

/**
 * @param answers in any order; the first one that names a proxy, or a server, decides
 * @returns all proxies if none is recognised. Cloudflare may hide another proxy, so the others follow it
 */
export function detectStack(answers: readonly ReceivedAnswer[]): DetectedStack {
  const found = answers.map(detectProxy).find((each) => each !== null) ?? null
  const server = answers.map(detectServer).find((each) => each !== null) ?? null
  if (found === null) return { proxies: PROXIES, isRecognised: false, server }
  if (found !== 'Cloudflare') return { proxies: [found], isRecognised: true, server }
  return {
    proxies: [found, ...PROXIES.filter((each) => each !== found)],
    isRecognised: true,
    server,
  }
}

/** Traefik sends no name. It is recognised by the texts of its error pages, which are those of Go. */
function detectProxy(answer: ReceivedAnswer): ProxyName | null {
  const { text } = answer
  const names = `${headerOf(answer, 'server')} ${headerOf(answer, 'via')}`
  if (headerOf(answer, 'cf-ray') !== '' || /cloudflare/i.test(names)) return 'Cloudflare'
  if (/nginx|openresty/i.test(names)) return 'nginx'
  if (/caddy/i.test(names)) return 'Caddy'
  if (
    headerOf(answer, 'server') === '' &&
    /^(?:404 page not found|Bad Gateway|Gateway Timeout)\s*$/.test(text)
  ) {
    return 'Traefik'
  }
  return null
}

function detectServer(answer: ReceivedAnswer): ServerKind | null {
  const { json } = answer
  const server = headerOf(answer, 'server')
  if (typeof json === 'object' && json !== null) {
    const { vendor } = json as { readonly vendor?: { readonly name?: unknown } }
    if (vendor?.name === 'settee') return 'settee'
    if ('express-pouchdb' in json) return 'PouchDB Server'
    if ('couchdb' in json) return 'CouchDB'
  }
  if (/\bsettee\//.test(server)) return 'settee'
  return /\bCouchDB\//.test(server) ? 'CouchDB' : null
}

/** The context that all checks share. */
export interface CheckContext {
  readonly address: Address
  /** Whether phones must be able to use the address. */
  readonly mobile: boolean
  readonly stack: DetectedStack
  readonly quote: Quote
}

type Lines = Partial<Readonly<Record<ProxyName | ServerKind, string>>>

const ORIGINS = APP_ORIGINS.join(',')
const NODE = 'SERVER/_node/_local/_config'
const CONFIG = `curl -u ADMIN -X PUT ${NODE}`
const SERVERS_CORS = `${CONFIG}/chttpd/enable_cors -d '"true"'; likewise cors/origins "${ORIGINS}" and cors/credentials "true"`
const SERVERS_LISTS = `curl -u ADMIN -X DELETE ${NODE}/cors/methods; likewise cors/headers`

export const ADVICE = {
  certificate: {
    nginx: 'ssl_certificate /path/fullchain.pem;  # the certificate, then the intermediate certificates',
    Caddy:
      'delete the line `tls ...`, so that Caddy gets and renews certificates itself; or tls fullchain.pem key.pem',
    Traefik: '--entryPoints.websecure.http.tls.certResolver=NAME, or certFile: /path/fullchain.pem',
    Cloudflare: 'SSL/TLS > Edge Certificates: Universal SSL on',
    settee: 'settee serve --tls-cert fullchain.pem --tls-key key.pem',
    CouchDB: '[ssl] cert_file = /path/cert.pem and cacert_file = /path/chain.pem',
  },
  protocols: {
    nginx: 'ssl_protocols TLSv1.2 TLSv1.3;',
    Caddy: 'protocols tls1.2 tls1.3  # in tls { ... }',
    Traefik: 'tls.options.default.minVersion: VersionTLS12',
    Cloudflare: 'SSL/TLS > Edge Certificates > Minimum TLS Version: 1.2',
    CouchDB: "[ssl] tls_versions = ['tlsv1.2', 'tlsv1.3']",
  },
  ciphers: {
    nginx: 'ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;',
    Caddy: 'delete the line `ciphers ...` in tls { }',
    Traefik: 'delete tls.options.default.cipherSuites',
    CouchDB: '[ssl] ciphers = ["ECDHE-ECDSA-AES128-GCM-SHA256","ECDHE-RSA-AES128-GCM-SHA256"]',
  },
  http2: {
    nginx: 'http2 on;  # before nginx 1.25.1: listen ... ssl http2;',
    Caddy: 'protocols h1 h2  # in servers { ... } of the global options',
    Traefik: 'delete tls.options.default.alpnProtocols',
    Cloudflare: 'Speed > Settings > HTTP/2: on',
  },
  upstream: {
    nginx: 'proxy_pass http://127.0.0.1:5984;  # the address of the server; is it running?',
    Caddy: 'reverse_proxy 127.0.0.1:5984',
    Traefik: 'traefik.http.services.NAME.loadbalancer.server.port=5984',
    Cloudflare: "set the tunnel's service, or the DNS record's address, to the address of the server",
  },
  challenge: { Cloudflare: 'Security > WAF > Custom rules: Skip, for this host name; Bot Fight Mode: off' },
  proxyPassword: {
    nginx: 'delete the lines auth_basic, auth_basic_user_file and auth_request',
    Caddy: 'delete basic_auth { ... } and forward_auth { ... }',
    Traefik: 'remove the middlewares basicAuth and forwardAuth from this router',
    Cloudflare: 'Zero Trust > Access > Applications: a policy Bypass for this host name',
  },
  authorization: {
    nginx: 'proxy_set_header Authorization $http_authorization;  # and delete auth_basic',
    Caddy: 'delete `header_up -Authorization` and `basic_auth`',
    Traefik: 'basicAuth.removeHeader=false, or remove the middleware basicAuth from this router',
    Cloudflare: 'Rules > Transform Rules > Modify Request Header: delete the rule that removes Authorization',
  },
  serverHeader: {
    nginx: 'proxy_pass_header Server;',
    Caddy: 'delete `header -Server` and `header Server ...`',
    Traefik: 'delete customResponseHeaders.Server',
    Cloudflare: 'nothing to change: Cloudflare always puts its own name there, which is harmless with settee',
  },
  origins: {
    settee: SERVERS_CORS,
    CouchDB: SERVERS_CORS,
    'PouchDB Server': `config.json: "httpd": {"enable_cors": true}, "cors": {"credentials": true, "origins": "${ORIGINS}"}`,
    nginx: 'delete the lines that answer OPTIONS (if ($request_method = OPTIONS) { ... }), and auth_basic',
    Caddy:
      'delete the lines that answer OPTIONS (@options method OPTIONS; respond @options ...), and basic_auth',
    Traefik:
      'remove the middlewares basicAuth, forwardAuth, and headers with accessControl..., from this router',
    Cloudflare: 'Zero Trust > Access > Applications > CORS: Bypass OPTIONS requests to origin',
  },
  corsLists: { settee: SERVERS_LISTS, CouchDB: SERVERS_LISTS },
  doubledCors: {
    nginx: 'delete every add_header Access-Control-... line: the server sends these headers itself',
    Caddy: 'delete every header Access-Control-... line: the server sends these headers itself',
    Traefik:
      'delete the accessControl... options of the middleware headers: the server sends these headers itself',
    Cloudflare:
      'Rules > Transform Rules > Modify Response Header: delete the rule that sets Access-Control-...',
  },
  paths: {
    nginx: 'proxy_pass http://127.0.0.1:5984;  # no slash or path after the port; also merge_slashes off;',
    Caddy: 'reverse_proxy 127.0.0.1:5984  # no handle_path, uri or rewrite around it',
    Traefik: '--entryPoints.websecure.http.encodedCharacters.allowEncodedSlash=true, and no stripPrefix',
    Cloudflare: 'Rules > Settings > Normalize URLs to origin: off',
  },
  forwarded: {
    nginx:
      'proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-For $remote_addr;  # beside proxy_pass',
    Caddy: 'delete `header_up -X-Forwarded-Proto` and `header_up Host ...`: Caddy sets both by itself',
    Traefik:
      'passHostHeader: true; --entryPoints.websecure.forwardedHeaders.trustedIPs=ADDRESS-OF-A-PROXY-BEFORE-IT',
    Cloudflare: 'SSL/TLS > Overview: Full (strict)',
    settee: `${CONFIG}/settee/trusted_proxies -d '"loopback"'  # or the proxy's address`,
  },
  forgedAddress: {
    nginx: 'proxy_set_header X-Forwarded-For $remote_addr;  # instead of $proxy_add_x_forwarded_for',
    Caddy: 'delete `header_up X-Forwarded-For ...`, and trusted_proxies except for a proxy in front of Caddy',
    Traefik: 'delete forwardedHeaders.insecure; forwardedHeaders.trustedIPs=ADDRESS-OF-A-PROXY-BEFORE-IT',
    settee: `${CONFIG}/settee/trusted_proxies -d '"127.0.0.1"'  # the proxy's address alone, no range with clients`,
  },
  buffering: {
    nginx: 'proxy_buffering off;  # beside proxy_pass; and delete proxy_ignore_headers X-Accel-Buffering',
    Caddy: 'flush_interval -1  # in reverse_proxy { ... }; and delete buffer_responses and response_buffers',
    Traefik: 'remove the middlewares buffering and compress from this router',
    Cloudflare: 'Caching > Cache Rules: Bypass cache, for this host name; Network > Response Buffering: off',
  },
  cut: {
    nginx: 'proxy_read_timeout 3600s; send_timeout 3600s;',
    Caddy: 'delete read_timeout of transport http { ... }, and servers { timeouts { write ... } }',
    Traefik: '--entryPoints.websecure.transport.respondingTimeouts.writeTimeout=0',
    Cloudflare: 'nothing to change: it cuts after 100 s without a byte; keep heartbeats on in the app',
  },
  bodies: {
    nginx: 'client_max_body_size 0;',
    Caddy: 'max_size 4GB  # in request_body { ... }',
    Traefik: 'remove the middleware buffering from this router, or set buffering.maxRequestBodyBytes=0',
    Cloudflare:
      'Security > WAF: Skip for this host name; bodies above 100 MB need more than the plans Free and Pro',
    settee: `${CONFIG}/chttpd/max_http_request_size -d '"4294967296"'`,
    CouchDB: `${CONFIG}/chttpd/max_http_request_size -d '"4294967296"'`,
    'PouchDB Server': 'config.json: "couchdb": {"max_document_size": 4294967296}',
  },
  writing: {
    nginx: 'delete limit_except { ... }',
    Caddy: 'delete the matcher @... method ... that excludes PUT and DELETE',
    Traefik: "remove Method(...) from this router's rule",
    Cloudflare: 'Security > WAF > Custom rules: Skip, for this host name',
  },
  slowBodies: {
    nginx: 'client_body_timeout 600s; proxy_send_timeout 600s; proxy_request_buffering off;',
    Caddy: 'delete servers { timeouts { read_body ... } }',
    Traefik: '--entryPoints.websecure.transport.respondingTimeouts.readTimeout=0',
    Cloudflare: 'nothing to change: the server must answer within 100 s of the whole body',
  },
} satisfies Record<string, Lines>

export type AdviceName = keyof typeof ADVICE

/**
 * Advice about pages of other origins.
 * @param origins to allow, besides those of the known apps
 */
export function adviseOrigins(origins: readonly string[], ...rest: AdviseRest): Cure[] {
  const all = [...new Set([...APP_ORIGINS, ...origins])].join(',')
  return advise('origins', ...rest).map(({ place, line }) => ({
    place,
    line: line.replaceAll(`"${ORIGINS}"`, () => `"${all}"`),
  }))
}

type AdviseRest = [stack: DetectedStack, whose?: 'server' | 'proxy' | 'any']

/**
 * @param whose who is at fault: the server, a proxy, or `any` if unknown
 * @returns the advice for the detected server, then for the proxies
 */
export function advise(
  name: AdviceName,
  stack: DetectedStack,
  whose: 'server' | 'proxy' | 'any' = 'any',
): Cure[] {
  const lines: Lines = ADVICE[name]
  const { server, proxies } = stack
  const places = [
    ...(whose !== 'proxy' && server !== null ? [server] : []),
    ...(whose !== 'server' ? proxies : []),
  ]
  return places.flatMap((place) => {
    const line = lines[place]
    return line === undefined ? [] : [{ place, line }]
  })
}
