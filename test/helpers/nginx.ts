/** A real nginx in front of a server. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { freePort } from '../cli/child.ts'
import { type CertificateFiles, certificateFiles } from './certificates.ts'
import { programOf, runListening } from './proxies.ts'
import { temporaryFolder } from './server.ts'

/** The file in docs/proxy.md. */
export const DEPLOYED = new URL('../../deploy/nginx.conf', import.meta.url)

export interface NginxOptions {
  /** The URL of the server behind it, without a slash at the end. */
  readonly upstream: string
  /** A file of server blocks that listen on 6984, proxy to 5984 and name certificates; by default {@link DEPLOYED}. */
  readonly file?: URL
  /** Changes the text before ports and paths are inserted: `(text) => text.replace('...', '...')`. */
  readonly edit?: (text: string) => string
  /** By default, a self-signed one for localhost and 127.0.0.1. */
  readonly certificate?: CertificateFiles
}

export interface Nginx {
  /** `https://127.0.0.1:PORT`. */
  readonly url: string
  readonly port: number
  /** The certificate that a client must trust. */
  readonly ca: string
  /** The paths of the certificate and key; {@link reload} reads new ones. */
  readonly certificate: CertificateFiles
  /** Waits until the log of requests matches, since nginx writes it after the answer. @throws Error after 10 s */
  logged(pattern: RegExp): Promise<void>
  errorLog(): Promise<string>
  /** Reads the configuration again, as `nginx -s reload`. Old workers end when their clients have disconnected. */
  reload(): Promise<void>
  /** Changes the server blocks as they are now, and reloads. */
  change(edit: (text: string) => string): Promise<void>
}

/** @throws Error with nginx's message if it refuses the configuration */
export async function startNginx(t: Pick<Test, 'teardown'>, options: NginxOptions): Promise<Nginx> {
  const folder = await temporaryFolder(t)
  const port = await freePort()
  const certificate = options.certificate ?? (await certificateFiles(t))
  const edit = options.edit ?? ((text: string) => text)
  const servers = edit(await readFile(options.file ?? DEPLOYED, 'utf8'))
    // Machines that run tests often lack IPv6.
    .replaceAll(/^ *listen \[::\].*\n/gm, '')
    .replaceAll('listen 6984', `listen 127.0.0.1:${port}`)
    .replaceAll('http://127.0.0.1:5984', options.upstream)
    .replaceAll(/(ssl_certificate) .*;/g, `$1 ${certificate.certFile};`)
    .replaceAll(/(ssl_certificate_key) .*;/g, `$1 ${certificate.keyFile};`)
  for (const name of ['body', 'proxy']) await mkdir(join(folder, name))
  await writeFile(join(folder, 'servers.conf'), servers)
  await writeFile(join(folder, 'nginx.conf'), mainOf(folder))
  const command = [
    programOf('nginx'),
    '-p',
    folder,
    '-c',
    join(folder, 'nginx.conf'),
    '-e',
    'error.log',
  ] as const
  const { child } = await runListening(t, [...command], port)
  const logged = async (pattern: RegExp) => {
    const end = Date.now() + 10_000
    for (;;) {
      const text = await readFile(join(folder, 'access.log'), 'utf8')
      if (pattern.test(text)) return
      if (Date.now() > end) throw new Error(`nginx logged no line that matches ${pattern}:\n${text}`)
      await sleep(20)
    }
  }
  const errorLog = () => readFile(join(folder, 'error.log'), 'utf8')
  const reload = async () => {
    child.kill('SIGHUP')
  }
  const change = async (edit: (text: string) => string) => {
    const path = join(folder, 'servers.conf')
    await writeFile(path, edit(await readFile(path, 'utf8')))
    await reload()
  }
  return {
    url: `https://127.0.0.1:${port}`,
    port,
    ca: certificate.cert,
    certificate,
    logged,
    errorLog,
    reload,
    change,
  }
}

/** Debian's own file, without the parts that tests do not need. */
function mainOf(folder: string): string {
  return `
daemon off;
${process.getuid?.() === 0 ? 'user root;' : ''}
worker_processes 2;
worker_shutdown_timeout 10s;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log notice;
events { worker_connections 512; }
http {
    access_log ${folder}/access.log combined;
    client_body_temp_path ${folder}/body;
    proxy_temp_path ${folder}/proxy;
    fastcgi_temp_path ${folder}/body;
    uwsgi_temp_path ${folder}/body;
    scgi_temp_path ${folder}/body;
    include ${folder}/servers.conf;
}
`
}
