/** Bodies that are parsed on the HTTP thread: what is large, coded, or sent by those who have no right is not read. */
import { once } from 'node:events'
import { connect as connectSocket } from 'node:net'
import t, { type Test } from 'tap'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

const ADMIN = `Basic ${Buffer.from('s:s').toString('base64')}`
const ANNA = `Basic ${Buffer.from('anna:anna').toString('base64')}`
const JSON_TYPE = 'application/json'

async function setUp(t: Test, settings: Record<string, string> = {}) {
  const server = await startMemoryServer(t, settings)
  const call = connect(t, server)
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  const asking = (method: string, path: string, body: string, authorization = ADMIN) =>
    call(method, path, { body, headers: { authorization, 'content-type': JSON_TYPE } })
  await asking('PUT', '/notes', '')
  return { ...server, asking }
}

t.test('the largest body of each call', async (t) => {
  const { asking } = await setUp(t)
  const calls: [method: string, path: string, bytes: number][] = [
    ['PUT', '/_config/cors/origins', 8192],
    ['POST', '/_session', 8192],
    ['POST', '/_settee/tokens', 8192],
    ['POST', '/_settee/backups/x/restore', 8192],
    ['PUT', '/notes/_revs_limit', 8192],
    ['PUT', '/notes/_purged_infos_limit', 8192],
    ['POST', '/_dbs_info', 32_768],
    ['POST', '/_cluster_setup', 32_768],
    ['PUT', '/notes/_security', 65_536],
    ['POST', '/_settee/databases/notes/rewind', 65_536],
  ]
  for (const [method, path, bytes] of calls) {
    const fits = await asking(method, path, `"${'x'.repeat(bytes - 2)}"`)
    t.not(fits.status, 413, `${path}, ${bytes} bytes`)
    const larger = await asking(method, path, `"${'x'.repeat(bytes - 1)}"`)
    t.equal(larger.status, 413, `${path}, one more`)
    t.match(larger.json, { error: 'too_large', reason: `${bytes} bytes` })
  }
})

t.test('what these calls are for fits', async (t) => {
  const { asking } = await setUp(t)
  const keys = Array.from({ length: 100 }, (_, n) => `a${n}`.padEnd(238, '-'))
  t.equal((await asking('POST', '/_dbs_info', JSON.stringify({ keys }))).status, 200, 'a hundred databases')
  const names = Array.from({ length: 3000 }, (_, n) => `member-${n}`)
  const security = { admins: { names: [], roles: [] }, members: { names, roles: ['team'] } }
  t.equal((await asking('PUT', '/notes/_security', JSON.stringify(security))).status, 200)
  const member = `Basic ${Buffer.from('member-2999:member-2999').toString('base64')}`
  t.equal((await asking('GET', '/notes', '', member)).status, 200)
  t.equal((await asking('GET', '/notes', '', ANNA)).status, 403)
  const many = { members: { names: Array.from({ length: 4001 }, () => 'a') } }
  const refused = await asking('PUT', '/notes/_security', JSON.stringify(many))
  t.match(refused, {
    status: 400,
    json: { error: 'bad_request', reason: 'names must be a list of no more than 4000' },
  })
})

t.test('who has no right, or has none left, is refused before his body is sent', async (t) => {
  const { port, config, asking } = await setUp(t, { 'settee/mode': 'hosted' })
  const refused = async (line: string, authorization?: string) => {
    const head = [line, 'Host: localhost', `Content-Type: ${JSON_TYPE}`, 'Content-Length: 100']
    if (authorization !== undefined) head.push(`Authorization: ${authorization}`)
    const socket = connectSocket(port, '127.0.0.1')
    socket.write(`${head.join('\r\n')}\r\n\r\n`)
    const [answer] = (await once(socket, 'data')) as [Buffer]
    socket.destroy()
    return answer.toString('latin1')
  }
  t.match(await refused('PUT /_config/log/level HTTP/1.1', ANNA), /^HTTP\/1.1 403 /, 'a key of the server')
  t.match(await refused('PUT /_config/admins/anna HTTP/1.1', ANNA), /^HTTP\/1.1 403 /, 'an admin')
  t.match(await refused('POST /_dbs_info HTTP/1.1'), /^HTTP\/1.1 401 /)
  t.match(await refused('POST /_settee/sign-up HTTP/1.1'), /^HTTP\/1.1 403 /, 'where there is none')
  await config.set('settee', 'sign_up', 'true')
  for (let n = 0; n < 5; n++) await asking('POST', '/_settee/sign-up', '{}')
  t.match(await refused('POST /_settee/sign-up HTTP/1.1'), /^HTTP\/1.1 429 /, 'once too often')
})
