/**
 * Requests that mean harm, through nginx with deploy/nginx.conf: none is read as two, no path becomes another one on the way,
 * no header names another client, scheme or host, and nobody gets another's answer.
 */
import { readFile } from 'node:fs/promises'
import { connect as plain } from 'node:net'
import { join } from 'node:path'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { type Nginx, startNginx } from '../../helpers/nginx.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

t.setTimeout(120_000)

const LOGIN = 'user:password'
const BASIC = `Authorization: Basic ${Buffer.from(LOGIN).toString('base64')}`
/** Of the client; nginx reaches settee from 127.0.0.1. */
const CLIENT = '127.0.0.2'

interface Scene {
  readonly server: TestServer
  readonly nginx: Nginx
  /** Lines of settee's log that have this text. */
  logged(text: string): Promise<readonly string[]>
}

async function scene(t: Test): Promise<Scene> {
  const logFile = join(await temporaryFolder(t), 'settee.log')
  const env = { COUCHDB_USER: 'user', COUCHDB_PASSWORD: 'password' }
  const server = await startTestServer(t, { env, logFile, logLevel: 'debug' })
  await server.request('PUT', '/_node/_local/_config/settee/trusted_proxies', {
    auth: LOGIN,
    body: '"127.0.0.1"',
  })
  await server.request('PUT', '/db', { auth: LOGIN })
  await server.request('PUT', '/db/secret', { auth: LOGIN, body: { word: 'hidden' } })
  const nginx = await startNginx(t, { upstream: server.url })
  const logged = async (text: string) => {
    const lines = (await readFile(logFile, 'utf8')).split('\n')
    return lines.filter((line) => line.includes(text))
  }
  return { server, nginx, logged }
}

/** Sends bytes on a connection of its own. @returns all that is answered until the connection is silent or ends */
function raw({ port, ca }: Nginx, bytes: string, silenceMs = 400): Promise<string> {
  return new Promise((resolve) => {
    const options = { host: '127.0.0.1', port, ca, localAddress: CLIENT } as ConnectionOptions
    const socket: TLSSocket = connect(options, () => {
      socket.write(bytes, 'latin1')
    })
    let heard = ''
    const end = () => {
      socket.destroy()
      resolve(heard)
    }
    socket.setTimeout(silenceMs, end)
    socket.on('data', (chunk: Buffer) => {
      heard += chunk.toString('latin1')
    })
    socket.on('error', end)
    socket.on('close', end)
  })
}

const head = (line: string, ...headers: string[]) =>
  `${[line, 'Host: 127.0.0.1', ...headers].join('\r\n')}\r\n\r\n`
const statusesOf = (text: string) =>
  [...text.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map(([, status]) => Number(status))

const SMUGGLED = 'GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'
const CHUNKED = `0\r\n\r\n${SMUGGLED}`
const length = (text: string) => `Content-Length: ${text.length}`
const POST = 'POST /db/_find HTTP/1.1'

/** Bodies whose end two readers might see in different places. */
const AMBIGUOUS: readonly (readonly [what: string, request: string])[] = [
  ['both lengths', head(POST, length(CHUNKED), 'Transfer-Encoding: chunked') + CHUNKED],
  ['both lengths, in the other order', head(POST, 'Transfer-Encoding: chunked', length(CHUNKED)) + CHUNKED],
  ['a space before the colon', head(POST, length(CHUNKED), 'Transfer-Encoding : chunked') + CHUNKED],
  ['a tab before the value', head(POST, length(CHUNKED), 'Transfer-Encoding:\tchunked') + CHUNKED],
  ['a vertical tab', head(POST, length(CHUNKED), 'Transfer-Encoding: \x0bchunked') + CHUNKED],
  ['a folded line', head(POST, length(CHUNKED), 'Transfer-Encoding:\r\n chunked') + CHUNKED],
  ['a folded first line', head(POST, ' Transfer-Encoding: chunked', length(CHUNKED)) + CHUNKED],
  ['two codings', head(POST, length(CHUNKED), 'Transfer-Encoding: chunked, identity') + CHUNKED],
  ['another coding', head(POST, length(CHUNKED), 'Transfer-Encoding: xchunked') + CHUNKED],
  [
    'two headers of codings',
    head(POST, length(CHUNKED), 'Transfer-Encoding: identity', 'Transfer-Encoding: chunked') + CHUNKED,
  ],
  ['an underscore', head(POST, length(CHUNKED), 'Transfer_Encoding: chunked') + CHUNKED],
  ['a zero byte in a name', head(POST, length(CHUNKED), 'Transfer-Encoding\0: chunked') + CHUNKED],
  ['a bare line feed', head(POST, `X: y\nTransfer-Encoding: chunked`, length(CHUNKED)) + CHUNKED],
  ['a bare carriage return', head(POST, `X: y\rTransfer-Encoding: chunked`, length(CHUNKED)) + CHUNKED],
  ['two lengths', head(POST, 'Content-Length: 0', length(SMUGGLED)) + SMUGGLED],
  ['a list of lengths', head(POST, 'Content-Length: 0, 5') + SMUGGLED],
  ['a length with a sign', head(POST, 'Content-Length: +0') + SMUGGLED],
  ['a length in hexadecimal digits', head(POST, 'Content-Length: 0x0') + SMUGGLED],
  ['a length below zero', head(POST, 'Content-Length: -1') + SMUGGLED],
  ['a length with a space before the colon', head(POST, `Content-Length : ${SMUGGLED.length}`) + SMUGGLED],
  ['a chunk of a huge size', `${head(POST, 'Transfer-Encoding: chunked')}fffffffffffffffff\r\n${SMUGGLED}`],
  [
    'a chunk of a size that wraps',
    `${head(POST, 'Transfer-Encoding: chunked')}10000000000000000\r\n${SMUGGLED}`,
  ],
  [
    'an extension with a line feed',
    `${head(POST, 'Transfer-Encoding: chunked')}2;a=\nxx\r\nab\r\n${CHUNKED.slice(0, 5)}`,
  ],
  [
    'HTTP/1.0 and chunks',
    head('POST /db/_find HTTP/1.0', 'Transfer-Encoding: chunked', length(CHUNKED)) + CHUNKED,
  ],
  [
    'an upgrade to HTTP/2',
    head(
      'GET / HTTP/1.1',
      'Connection: Upgrade, HTTP2-Settings',
      'Upgrade: h2c',
      'HTTP2-Settings: AAMAAABkAAQAAP__',
    ) + SMUGGLED.slice(0, 0),
  ],
  [
    'a connection header that names a header',
    head(POST, 'Connection: X-Forwarded-For, Content-Length', length(SMUGGLED)) + SMUGGLED,
  ],
  ['a body of GET', head('GET /db HTTP/1.1', length(SMUGGLED)) + SMUGGLED],
]

t.test('no request is read as two', async (t) => {
  const { nginx, logged, server } = await scene(t)
  for (const [what, request] of AMBIGUOUS) {
    const answer = await raw(nginx, request)
    // nginx may take what follows a body for the client's own next request, which it is then; settee must agree with it.
    const count = statusesOf(answer).length
    t.ok(count <= 2, `${what}: ${statusesOf(answer)}`)
    const seen = (await logged('/smuggled')).length
    t.ok(seen === 0 || count === 2, `${what}: only what nginx has answered has reached settee`)
    const own = await raw(nginx, head('GET /_session HTTP/1.1', BASIC, 'Connection: close'))
    t.match(own, /"name":"user"/, `${what}: the next client has its own answer`)
    const stranger = await raw(nginx, head('GET /_session HTTP/1.1', 'Connection: close'))
    t.match(stranger, /"name":null/, `${what}: and so has the one after it`)
  }
  t.equal((await server.request('GET', '/_up')).status, 200)
})

/** Paths that a normalisation would lead elsewhere. */
const PATHS = [
  '//_all_dbs',
  '/./_all_dbs',
  '/db/../_all_dbs',
  '/db/..%2f_all_dbs',
  '/db%2f..%2f_all_dbs',
  '/%2e%2e/_all_dbs',
  '/db/%2e%2e/_all_dbs',
  '/db/secret/../../_users/_all_docs',
  '/_utils/../_node/_local/_config',
  '/_utils/..%2f_node%2f_local%2f_config',
  '/_utils/%2e%2e/_config',
  '/_utils/..%2f..%2f..%2f..%2fetc/passwd',
  '/_utils/%5c..%5c..%5cetc',
  '/_up/../db/secret',
  '/_up%2f..%2fdb%2fsecret',
  '/_up;/db/secret',
  '/_up/..;/db/secret',
  '/db/secret%00',
  '/db%00/secret',
  '/%00',
  '/db/secret%0d%0aX-Evil:%201',
  '/db/secret%23',
  '/db/secret%3frev=1',
  '/DB/secret',
  '/_NODE/_local/_config',
  '/db//secret',
  '/db/secret/',
  '/db/./secret',
  '/_node/_local/_config#',
  '/%5f%61%6c%6c_dbs',
  '/db/_changes/../secret',
  '/x/_changes%2f..',
  '/db/%c0%ae%c0%ae/_all_dbs',
] as const
const ABSOLUTE = [
  'http://127.0.0.1/db/secret',
  'https://evil.example/_all_dbs',
  'http://evil.example:5984/db/secret',
  'ftp://x/db',
  'db/secret',
  '*',
  'http://user:password@127.0.0.1/db/secret',
]

t.test('a stranger gets nothing by any path, and settee sees the path that was sent', async (t) => {
  const { nginx, server } = await scene(t)
  const direct = new URL(server.url)
  const directly = (bytes: string) =>
    new Promise<string>((resolve) => {
      const socket = plain(Number(direct.port), '127.0.0.1', () => socket.write(bytes))
      let heard = ''
      socket.on('data', (chunk) => {
        heard += chunk
      })
      socket.on('error', () => resolve(heard))
      socket.on('close', () => resolve(heard))
    })
  for (const path of [...PATHS, ...ABSOLUTE]) {
    const request = head(`GET ${path} HTTP/1.1`, 'Connection: close')
    const through = await raw(nginx, request)
    t.notMatch(through, /hidden|"_users"|root:|\[admins\]|"admins"/, path)
    t.notMatch(through, /^x-evil:/im, path)
    const [status = 0] = statusesOf(through)
    const [alone = 0] = statusesOf(await directly(request))
    t.ok(
      status === alone || status === 400 || alone === 400,
      `${path}: ${status} through nginx, ${alone} without it`,
    )
    if (status === 200) t.match(through, /"status":"ok"|<html|"couchdb":"Welcome"/i, path)
  }
})

const FORGED = [
  'X-Forwarded-Host: evil.example',
  'X-Forwarded-Proto: http',
  'X-Forwarded-Ssl: off',
  'X-Forwarded-For: 9.9.9.9',
  'X_Forwarded_For: 9.9.9.9',
  'X-Forwarded-Prefix: /evil',
  'X-Forwarded-Port: 1',
  'X-Forwarded-Server: evil.example',
  'X-Forwarded-User: user',
  'X-Real-IP: 9.9.9.9',
  'True-Client-IP: 9.9.9.9',
  'Forwarded: for=9.9.9.9;proto=http;host=evil.example',
  'X-Original-URL: /_all_dbs',
  'X-Rewrite-URL: /_all_dbs',
  'X-HTTP-Method-Override: DELETE',
  'X-HTTP-Method: DELETE',
  'X-Method-Override: DELETE',
  'X-Auth-CouchDB-UserName: user',
  'X-Auth-CouchDB-Roles: _admin',
  'Front-End-Https: off',
  'X-Host: evil.example',
]

t.test('no header of a client names another client, scheme, host, method or user', async (t) => {
  const { nginx, logged } = await scene(t)
  const body = JSON.stringify({ name: 'user', password: 'password' })
  const json = ['Content-Type: application/json', 'Connection: close']
  const login = await raw(nginx, head('POST /_session HTTP/1.1', ...FORGED, ...json, length(body)) + body)
  t.match(login, /^set-cookie: AuthSession=.*; ?secure/im, 'the cookie is for TLS alone')
  const put = await raw(nginx, `${head('PUT /db/made HTTP/1.1', ...FORGED, BASIC, ...json, length('{}'))}{}`)
  t.match(put, /^HTTP\/1\.1 201/)
  t.match(put, /^location: https:\/\/127\.0\.0\.1\/db\/made\r$/im)
  t.equal(
    statusesOf(await raw(nginx, head('GET /db/made HTTP/1.1', ...FORGED, BASIC, 'Connection: close')))[0],
    200,
  )
  t.equal(
    statusesOf(await raw(nginx, head('GET /db/made HTTP/1.1', BASIC, 'Connection: close')))[0],
    200,
    'it is still there',
  )
  for (const path of ['/_all_dbs', '/db/secret', '/_session', '/_utils/', '/', '/_up']) {
    const answer = await raw(nginx, head(`GET ${path} HTTP/1.1`, ...FORGED, 'Connection: close'))
    t.notMatch(answer, /evil|9\.9\.9\.9|hidden/, path)
    t.notMatch(answer, /^cache-control:.*(?:public|s-maxage)/im, `${path}: no shared cache keeps it`)
  }
  t.same(await logged('9.9.9.9'), [])
  t.ok((await logged(CLIENT)).length > 0)
})

t.test('users who come at once have their own answers, on connections that are kept', async (t) => {
  const { nginx } = await scene(t)
  const own = head('GET /_session HTTP/1.1', BASIC)
  const strangers = head('GET /_session HTTP/1.1')
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, n) => raw(nginx, (n % 2 === 0 ? own : strangers).repeat(10), 1000)),
  )
  for (const [n, answer] of answers.entries()) {
    const names = [...answer.matchAll(/"name":("user"|null)/g)].map(([, name]) => name)
    t.same(
      names,
      Array.from({ length: 10 }, () => (n % 2 === 0 ? '"user"' : 'null')),
    )
  }
})
