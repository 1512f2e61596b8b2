/** Names that are meant to lead elsewhere: in addresses, and in the data folder. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { connect } from './client.ts'

/** What may follow `PUT /` and make no database, with its status. */
const NO_DATABASES: readonly (readonly [path: string, status: number])[] = [
  ['..', 400],
  ['%2e%2e', 400],
  ['%2E%2E%2F%2E%2E', 400],
  ['..%2f..%2fetc%2fpasswd', 400],
  ['.', 400],
  ['a%2f..%2fb', 400],
  ['a%2f.', 400],
  ['a..', 400],
  ['a.sqlite', 400],
  ['server.sqlite', 400],
  ['a%5c..%5cb', 400],
  ['c:', 400],
  ['a:stream', 400],
  ['a%00', 400],
  ['a%00.sqlite', 400],
  ['A', 400],
  ['Notes', 400],
  ['a%20', 400],
  ['a.', 400],
  ['%20a', 400],
  ['-a', 400],
  ['~', 400],
  ['a%252f', 400],
  ['%C3%A4', 400],
  ['a%EF%BC%8E', 400],
  ['%c0%ae%c0%ae', 400],
  ['a%c0%af', 400],
  ['a%ff', 400],
  ['a%ed%a0%80', 400],
  ['a%u002e', 400],
  ['a%2', 400],
  [`${'a'.repeat(241)}`, 400],
  [`a${'%2F'.repeat(300)}`, 400],
  [`${'a'.repeat(30_000)}`, 400],
  ['a/../b', 404],
  ['a/%2e%2e', 404],
  ['../a', 404],
]

const DATABASES = [
  'con',
  'nul',
  'aux',
  'prn',
  'com1',
  'lpt9',
  'conf',
  'a%2Fcon',
  'con%2Fa',
  'a--',
  'a%2F%2Fb',
]

t.test('names of databases lead nowhere but into their folder', async (t) => {
  const outer = await temporaryFolder(t)
  const dataDir = join(outer, 'inner', 'data')
  const server = await startTestServer(t, { dataDir })
  const call = connect(t, server)
  for (const [path, status] of NO_DATABASES) {
    const { status: found, json } = await call('PUT', `/${path}`, { body: '{}' })
    t.equal(found, status, path.slice(0, 40))
    t.ok((json as { error?: string }).error)
    for (const method of ['GET', 'DELETE']) {
      const refused = (await call(method, `/${path}`)).status
      t.ok(refused === 404 || refused === 400, `${method} ${path.slice(0, 40)}: ${refused}`)
    }
  }
  t.strictSame((await call('GET', '/_all_dbs')).json, ['_users'])
  t.strictSame(await readdir(outer), ['inner'])
  t.strictSame(await readdir(join(outer, 'inner')), ['data'])
  for (const name of DATABASES) t.equal((await call('PUT', `/${name}`)).status, 201, name)
  const files = (await readdir(join(dataDir, 'databases'))).filter(
    (file) => file.endsWith('.sqlite') && file !== '_users.sqlite',
  )
  t.equal(files.length, DATABASES.length)
  for (const file of files) {
    t.notMatch(file, /^(?:con|nul|aux|prn|com\d|lpt\d)(?:\.|$)/i, 'no device of Windows')
    t.match(file, /^[a-z%][a-z0-9_$()+%A-F-]*\.sqlite$/, 'one that every file system holds')
  }
  t.equal(new Set(files.map((file) => file.toLowerCase())).size, files.length)
  await server.close()
  const again = connect(t, await startTestServer(t, { dataDir }))
  const names = [...DATABASES.map(decodeURIComponent), '_users'].sort()
  t.strictSame((await again('GET', '/_all_dbs')).json, names, 'found again at the next start')
})

t.test('names of documents and attachments are names, whatever they look like', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const ids = [
    '..',
    '.',
    '%2e%2e',
    '..%2f..%2fetc%2fpasswd',
    '%5c..',
    'con',
    'a%00b',
    'x%252fy',
    'A',
    'a',
    'a.',
    '%20',
  ]
  for (const id of ids)
    t.equal(
      (await call('PUT', `/db/${id}`, { body: JSON.stringify({ id }) })).status,
      id === '%2e%2e' ? 409 : 201,
      id,
    )
  for (const id of ids) {
    const { json } = await call('GET', `/db/${id}`)
    t.equal((json as { _id: string })._id, decodeURIComponent(id), id)
  }
  for (const id of ['%c0%ae%c0%ae', '%c0%af', '%ed%a0%80', '%ff', '%f8%88%80%80%80', '%zz', 'a%']) {
    t.match(
      await call('PUT', `/db/${id}`, { body: '{}' }),
      { status: 400, json: { reason: 'invalid_url_encoding' } },
      id,
    )
    t.match(await call('PUT', `/db/doc/${id}`, { body: '{}' }), { status: 400 }, id)
  }
  t.match(await call('PUT', `/db/${'x'.repeat(8001)}`, { body: '{}' }), {
    status: 400,
    json: { error: 'illegal_docid' },
  })
  const names: [name: string, status: number][] = [
    ['..', 400],
    ['%2e%2e', 400],
    ['a/../b', 400],
    ['a%2f..%2fb', 400],
    ['.', 400],
    ['a%00b', 400],
    ['a%0d%0aX:y', 400],
    ['con', 201],
    ['a%5c..%5cb', 201],
    ['%2fetc%2fpasswd', 201],
    ['a.', 201],
    ['x%252fy', 201],
  ]
  for (const [at, [name, status]] of names.entries()) {
    const path = `/db/files-${at}/${name}`
    t.equal((await call('PUT', path, { body: 'content' })).status, status, name)
    if (status === 201) t.equal((await call('GET', path)).text, 'content', name)
  }
  t.strictSame((await call('GET', '/_all_dbs')).json, ['_users', 'db'])
})
