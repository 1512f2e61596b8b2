/** Proxies accept the lines that the doctor advises, in the given places. */
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { ADVICE } from '../../../src/doctor/advice.ts'
import type { ProbeLimits } from '../../../src/doctor/doctor-client.ts'
import { FEED, look, NO_FEED } from '../../doctor/looking.ts'
import { certificateFiles } from '../../helpers/certificates.ts'
import { startNginx } from '../../helpers/nginx.ts'
import { programOf } from '../../helpers/proxies.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'

const run = promisify(execFile)

/** @returns the line to write; null if the advice is to delete a line, or is about a dashboard */
function codeOf(line: string): string | null {
  const [code = ''] = line.split('  # ')
  return /^(?:delete|none)\b/.test(code) ? null : code
}

function linesFor(place: 'nginx' | 'Caddy'): [name: string, code: string, comment: string][] {
  return Object.entries(ADVICE).flatMap(([name, lines]): [string, string, string][] => {
    const line = (lines as Partial<Record<string, string>>)[place]
    const code = line === undefined ? null : codeOf(line)
    return code === null ? [] : [[name, code, line!.slice(code.length)]]
  })
}

t.test('nginx accepts its lines', async (t) => {
  const { certFile, keyFile } = await certificateFiles(t)
  const folder = await temporaryFolder(t)
  const told = linesFor('nginx')
  t.ok(told.length >= 12, `${told.length}`)
  for (const [name, code] of told) {
    // Debian 12 has nginx 1.22, which needs the form in the line's comment for HTTP/2.
    const lines = code.replace('/path/fullchain.pem', certFile).replace(/^http2 on;$/, '')
    const isOfTls = /^ssl_/.test(lines)
    const pass = lines.includes('proxy_pass ') ? '' : 'proxy_pass http://127.0.0.1:5984;'
    const certificate = lines.includes('ssl_certificate ') ? '' : `ssl_certificate ${certFile};`
    const file = join(folder, `${name}.conf`)
    await writeFile(
      file,
      `pid ${folder}/pid; events {} http { server { listen 127.0.0.1:1 ssl http2;
        ${certificate} ssl_certificate_key ${keyFile}; ${isOfTls ? lines : ''}
        location / { ${pass} ${isOfTls ? '' : lines} } } }`,
    )
    const { stderr } = await run(programOf('nginx'), [
      '-t',
      '-c',
      file,
      '-p',
      folder,
      '-e',
      join(folder, 'log'),
    ]).catch((error: Error & { stderr: string }) => error)
    t.match(stderr, /test is successful/, name)
  }
})

t.test('Caddy accepts its lines', async (t) => {
  const folder = await temporaryFolder(t)
  const env = { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }
  const told = linesFor('Caddy')
  t.ok(told.length >= 6, `${told.length}`)
  for (const [name, code, comment] of told) {
    const [, block] = /# in (\w+) \{ \.\.\. \}/.exec(comment) ?? []
    const isGlobal = comment.includes('global options')
    const inBlock =
      block === undefined
        ? code
        : `${block} ${block === 'reverse_proxy' ? '127.0.0.1:5984 ' : ''}{\n${code}\n}`
    const site = isGlobal ? 'respond ok' : inBlock
    const file = join(folder, name)
    await writeFile(file, `{\n${isGlobal ? inBlock : ''}\n}\nnotes.example.org {\n${site}\n}\n`)
    const { stdout, stderr } = await run(
      programOf('caddy'),
      ['adapt', '--config', file, '--adapter', 'caddyfile'],
      { env },
    ).catch((error: Error & { stdout: string; stderr: string }) => error)
    t.match(stdout, /^\{"apps"/, `${name}: ${stderr}`)
  }
})

/** @returns the time limits with a fault, and without one */
function pacesOf(name: string): readonly [ill: Partial<ProbeLimits>, well: Partial<ProbeLimits>] {
  if (name === 'feed') return [NO_FEED, FEED]
  const long = { longMs: 3500, longHeartbeatMs: 2500 }
  return name === 'long feed' ? [long, long] : [{}, {}]
}

t.test('each line fixes its fault in nginx', async (t) => {
  const server = await startTestServer(t, { env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' } })
  const auth = 'anna:secret'
  await server.request('PUT', '/_node/_local/_config/settee/trusted_proxies', { auth, body: '"127.0.0.1"' })
  await server.request('PUT', '/notes', { auth })
  const examine = async (edit: (text: string) => string, limits: Partial<ProbeLimits>) => {
    const nginx = await startNginx(t, { upstream: server.url, edit })
    const address = `${nginx.url.replace('//', '//anna:secret@')}/notes`
    return look(address, { ca: nginx.ca, limits: { bodies: [1_049_600], ...limits } })
  }
  // Each fault, which the advised line replaces.
  const rows: [
    name: 'feed' | 'long feed' | 'bodies' | 'location' | 'paths' | 'version' | 'credentials' | 'client',
    good: RegExp,
    bad: string,
  ][] = [
    ['feed', /proxy_buffering off;/, 'proxy_ignore_headers X-Accel-Buffering;'],
    ['long feed', /proxy_read_timeout 1h;/, 'proxy_read_timeout 1s;'],
    ['bodies', /client_max_body_size 0;/, ''],
    ['location', /(?:proxy_set_header (?:Host|X-).*\n\s*)+/, 'proxy_set_header Host inside:80;'],
    ['paths', /(?<=location \/ \{\s*)proxy_pass \S+;/, 'proxy_pass http://127.0.0.1:5984/;'],
    ['version', /proxy_pass_header Server;/, ''],
    [
      'client',
      /proxy_set_header X-Forwarded-For \S+;/,
      'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;',
    ],
    ['credentials', /(?<=proxy_redirect off;)/, 'proxy_set_header Authorization "";'],
  ]
  for (const [name, good, bad] of rows) {
    const ill = await examine((text) => text.replace(good, bad), pacesOf(name)[0])
    t.match(ill.one(name).state, name === 'location' || name === 'version' ? 'note' : 'wrong', name)
    const [cure] = ill.one(name).cures.filter(({ place }) => place === 'nginx')
    const code = codeOf(cure!.line)!
    const well = await examine((text) => text.replace(good, code), pacesOf(name)[1])
    t.equal(well.one(name).state, 'fine', `${name}: ${well.one(name).text}`)
  }
})
