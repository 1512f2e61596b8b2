/** Load balancers in front of several nodes: nginx and Caddy with the files of deploy/. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { freePort } from '../cli/child.ts'
import { certificateFiles } from './certificates.ts'
import { type Nginx, startNginx } from './nginx.ts'
import { programOf, runListening } from './proxies.ts'
import { temporaryFolder } from './server.ts'

const NGINX = new URL('../../deploy/nodes-nginx.conf', import.meta.url)
const CADDY = new URL('../../deploy/nodes.Caddyfile', import.meta.url)

export interface BalancerOptions {
  /** False: requests go to each node in turn, whatever their database. */
  readonly hasAffinity?: boolean
  /** nginx alone: without TLS, for clients that trust no certificate of a test. */
  readonly isPlain?: boolean
  /** nginx alone: the time that a node which failed gets no requests, in seconds; by default that of the file. */
  readonly failSeconds?: number
}

export interface Balancer {
  /** `https://127.0.0.1:PORT`. */
  readonly url: string
  /** The certificate that a client must trust. */
  readonly ca: string
}

export interface NginxBalancer extends Nginx {
  /** From now on a node gets no more requests, as if an operator had written `down` and reloaded. */
  drain(url: string): Promise<void>
}

function withoutTls(text: string): string {
  return text
    .replaceAll(' ssl http2;', ';')
    .replaceAll(/^ *ssl_.*\n/gm, '')
    .replace(/^ *proxy_set_header X-Forwarded-Ssl .*\n/m, '')
}

const hostOf = (url: string) => url.replace('http://', '')

/** @param urls of the nodes, without a slash at the end */
export async function nginxOver(
  t: Pick<Test, 'teardown'>,
  urls: readonly string[],
  { hasAffinity = true, isPlain = false, failSeconds }: BalancerOptions = {},
): Promise<NginxBalancer> {
  const serverLine = /^ *server 127\.0\.0\.1:\d+ (.*);\n/gm
  const edit = (text: string) => {
    const [, options] = /^ *server 127\.0\.0\.1:\d+ (.*);$/m.exec(text) ?? []
    const lines = urls.map((url) => `    server ${hostOf(url)} ${options};\n`).join('')
    const edited = text.replaceAll(serverLine, '').replace(/^( *)(?=keepalive )/m, () => lines)
    const spread = hasAffinity ? edited : edited.replace(/^ *hash .*\n/m, '')
    const timed =
      failSeconds === undefined
        ? spread
        : spread.replaceAll(/fail_timeout=\d+s/g, `fail_timeout=${failSeconds}s`)
    return isPlain ? withoutTls(timed) : timed
  }
  const nginx = await startNginx(t, { upstream: '', file: NGINX, edit })
  return {
    ...nginx,
    ...(isPlain && { url: nginx.url.replace('https:', 'http:') }),
    drain: async (url) => {
      await nginx.change((text) => text.replace(`server ${hostOf(url)} `, `server ${hostOf(url)} down `))
    },
  }
}

/** @param urls of the nodes, without a slash at the end */
export async function caddyOver(
  t: Pick<Test, 'teardown'>,
  urls: readonly string[],
  { hasAffinity = true }: BalancerOptions = {},
): Promise<Balancer> {
  const [port, tls] = [await freePort(), await certificateFiles(t)]
  await runCaddy(t, port, {
    file: CADDY,
    edit: (text) => {
      const edited = text.replace('\treverse_proxy', `\ttls ${tls.certFile} ${tls.keyFile}\n\treverse_proxy`)
      // Caddy 2.6 may find no node by `round_robin` if one of them is down and several requests choose at once.
      return hasAffinity ? edited : edited.replace(/lb_policy .*/, 'lb_policy random')
    },
    env: { SETTEE_UPSTREAMS: urls.map(hostOf).join(' ') },
  })
  return { url: `https://127.0.0.1:${port}`, ca: tls.cert }
}

export interface CaddyOptions {
  readonly file: URL
  /** Changes the text of the file. */
  readonly edit: (text: string) => string
  readonly env: NodeJS.ProcessEnv
}

/** Runs Caddy with a file of sites, whose domain is 127.0.0.1 with the given port. */
export async function runCaddy(
  t: Pick<Test, 'teardown'>,
  port: number,
  { file, edit, env }: CaddyOptions,
): Promise<void> {
  const folder = await temporaryFolder(t)
  const path = join(folder, 'Caddyfile')
  const sites = edit(await readFile(file, 'utf8'))
  await writeFile(path, `{\n\tadmin off\n\tauto_https disable_redirects\n}\n${sites}`)
  await runListening(t, [programOf('caddy'), 'run', '--config', path, '--adapter', 'caddyfile'], port, {
    ...{ HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
    ...{ SETTEE_DOMAIN: `https://127.0.0.1:${port}`, ...env },
  })
}
