/** curl, nano and couchbackup over settee's own TLS, by HTTP/1.1 and by HTTP/2 as far as they speak it. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import nano from 'nano'
import t from 'tap'
import { Agent } from 'undici'
import { ROOT, start } from '../cli/child.ts'
import { certificateFiles } from '../helpers/certificates.ts'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'

const MB = 1024 * 1024
const AUTH = 'anna:secret'

t.test('clients over TLS', async (t) => {
  const [tls, folder] = [await certificateFiles(t), await temporaryFolder(t)]
  const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }
  const { secureUrl, request } = await startTestServer(t, { tls, env })
  const address = secureUrl.replace('//', `//${AUTH}@`)
  await request('PUT', '/_node/_local/_config/couchdb/max_attachment_size', {
    auth: AUTH,
    body: `"${8 * MB}"`,
  })
  const file = join(folder, 'picture')
  await writeFile(file, Buffer.alloc(12 * MB, 'settee '))

  for (const version of ['http1.1', 'http2']) {
    t.test(`curl --${version}`, async (t) => {
      const write = '\n%{http_code} %{http_version}'
      const curl = async (...args: string[]) => {
        const fixed = [
          '--silent',
          '--show-error',
          `--${version}`,
          '--cacert',
          tls.certFile,
          '--write-out',
          write,
        ]
        const { code, stdout, stderr } = await start(t, 'curl', [...fixed, ...args]).ended
        t.match({ code, stderr }, { code: 0, stderr: '' }, args.join(' '))
        return stdout
      }
      const db = `${address}/by-${version.replace('.', '-')}`
      const [, number = ''] = version.split('http')
      t.match(await curl('-X', 'PUT', db), new RegExp(`"ok":true.*\n201 ${number}$`, 's'))
      t.match(await curl('-X', 'PUT', `${db}/a`, '-d', '{"text":"ä"}'), /201/)
      t.match(await curl('--compressed', `${db}/_all_docs?include_docs=true`), /"text":"ä".*\n200/s)
      t.match(await curl('-I', `${db}/a`), /^HTTP.* 200.*etag: /is)
      const form = ['-i', '-d', 'name=anna&password=secret', `${secureUrl}/_session`]
      t.match(await curl(...form), /^set-cookie: AuthSession=[^;]+;.*; Secure/im)
      t.match(await curl('-T', file, `${db}/b/picture`), /"error":"attachment_too_large".*\n413/s)
      t.match(await curl('-H', 'Expect:', '-T', file, `${db}/b/picture`), /"error":.*\n413/s)
      t.match(await curl(`${db}/_changes?feed=continuous&timeout=100`), /"last_seq":.*\n200/s)
    })
  }

  for (const allowH2 of [false, true]) {
    t.test(`nano, by HTTP/${allowH2 ? 2 : 1.1}`, async (t) => {
      const agent = new Agent({ allowH2, connect: { ca: tls.cert } })
      t.teardown(() => agent.destroy())
      const couch = nano({ url: address, agentOptions: agent as never })
      await couch.db.create('nano')
      const db = couch.use<{ n: number }>('nano')
      t.match(await db.insert({ n: 1 }, 'a'), { ok: true, id: 'a' })
      const docs = Array.from({ length: 500 }, (_, n) => ({ _id: `doc-${n}`, n }))
      t.equal((await db.bulk({ docs })).length, 500)
      t.equal((await db.list({ include_docs: true })).rows.length, 501)
      const bytes = Buffer.alloc(3 * MB, 'settee ')
      await db.attachment.insert('b', 'picture', bytes, 'image/png')
      t.ok(bytes.equals(await db.attachment.get('b', 'picture')))
      await t.rejects(db.get('none'), /missing/)
      await couch.db.destroy('nano')
    })
  }

  t.test('couchbackup and couchrestore', async (t) => {
    await request('PUT', '/notes', { auth: AUTH })
    const docs = Array.from({ length: 50 }, (_, n) => ({ _id: `note-${n}`, text: 'x'.repeat(1000) }))
    await request('POST', '/notes/_bulk_docs', { auth: AUTH, body: { docs } })
    await request('PUT', '/restored', { auth: AUTH })
    const run = async (name: string, database: string, input?: string) => {
      const program = join(ROOT, 'node_modules', '.bin', name)
      const env = { NODE_EXTRA_CA_CERTS: tls.certFile, TMPDIR: folder, COUCH_URL: address }
      const options = { env, ...(input !== undefined && { input }) }
      const { code, stdout, stderr } = await start(t, program, ['--db', database], options).ended
      t.equal(code, 0, name, { stderr })
      return stdout
    }
    await run('couchrestore', 'restored', await run('couchbackup', 'notes'))
    t.match((await request('GET', '/restored', { auth: AUTH })).json, { doc_count: 50 })
  })
})
