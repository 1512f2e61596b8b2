/** Nodes and a PostgreSQL with TLS: what they accept, and what they tell nobody. */
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { certificateFiles } from '../../helpers/certificates.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'

const PASSWORD = 'correct horse'

t.setTimeout(120_000)
const right = await certificateFiles(t, { names: ['localhost'], addresses: [] })
const wrong = await certificateFiles(t, { names: ['localhost'], addresses: [] })
const postgres = await startPostgres(t, { password: PASSWORD, certificate: right })
const database = new URL(await postgres.createDatabase()).pathname

async function start(t: Test, host: string, parameters: string, port = postgres.port) {
  const passwordFile = join(await temporaryFolder(t), 'password')
  await writeFile(passwordFile, PASSWORD, { mode: 0o600 })
  const env = {
    SETTEE_STORE: `postgres://settee@${host}:${port}${database}?${parameters}`,
    SETTEE_STORE_PASSWORD_FILE: passwordFile,
  }
  return startTestServer(t, { env })
}

for (const [host, mode] of [['localhost', 'verify-full'] as const, ['127.0.0.1', 'verify-ca'] as const]) {
  t.test(
    `${mode} as ${host} accepts the certificate of the given root, and everything is encrypted`,
    async (t) => {
      const server = await start(t, host, `sslmode=${mode}&sslrootcert=${right.certFile}`)
      t.match(await server.request('PUT', `/${mode}`), { status: 201 })
      t.match(await server.request('PUT', `/${mode}/a`, { body: {} }), { status: 201 })
      const connections = await postgres.query(
        `SELECT s.ssl FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.usename = 'settee'`,
      )
      t.ok(connections.length > 2)
      t.ok(connections.every(({ ssl }) => ssl === true))
      await server.close()
    },
  )
}

const REFUSED: readonly (readonly [host: string, parameters: string, reason: RegExp])[] = [
  ['127.0.0.1', `sslmode=verify-full&sslrootcert=${right.certFile}`, /does not match certificate's altnames/],
  ['localhost', `sslmode=verify-full&sslrootcert=${wrong.certFile}`, /self-signed certificate/],
  ['127.0.0.1', `sslmode=verify-ca&sslrootcert=${wrong.certFile}`, /self-signed certificate/],
  ['127.0.0.1', `sslmode=require&sslrootcert=${wrong.certFile}`, /self-signed certificate/],
  ['localhost', 'sslmode=verify-full', /self-signed certificate/],
]

t.test('another root and another name are refused at once, in one line without the password', async (t) => {
  for (const [host, parameters, reason] of REFUSED) {
    const message = await start(t, host, parameters).then(
      () => 'it started',
      (error: Error) => error.message,
    )
    t.match(message, reason, `${host} ${parameters}`)
    t.match(message, /^The store postgres:\/\/settee@[a-z0-9.]+:\d+\/test_1 cannot be reached: [^\n]*\.$/)
    t.notMatch(message, PASSWORD)
  }
})

t.test('whoever says that there is no TLS gets nothing more', async (t) => {
  const got: Buffer[] = []
  const hostile = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.on('data', (bytes) => {
      got.push(bytes)
      socket.write('N')
    })
  }).listen(0, '127.0.0.1')
  await once(hostile, 'listening')
  t.teardown(() => hostile.close())
  const { port } = hostile.address() as AddressInfo
  await t.rejects(start(t, '127.0.0.1', 'sslmode=require', port), { message: /does not support SSL/ })
  // SSLRequest: its length, and its code.
  t.same(Buffer.concat(got), Buffer.from('0000000804d2162f', 'hex'))
})
