/** What the log says above debug: no id of a document, no name of an attachment, no query, no credentials. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { DatabaseHandle } from '../../src/threads/databases.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'
import { speak } from './raw.ts'

const ID = 'diary-of-monday'
const FILE = 'letter-to-anna.pdf'
const QUERY = 'token=hunter2'
const SECRET = 'correct-horse'

t.test('after faults of every kind', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  server.app.services.logger.level = 'info'
  await call('PUT', '/db')
  await call('PUT', `/db/${ID}`, { body: '{}' })
  const database = server.databases.get('db') as {
    -readonly [Name in keyof DatabaseHandle]: DatabaseHandle[Name]
  }
  const whole = { ...database }
  const faults: unknown[] = [
    new Error('the disk is on fire'),
    new CouchError('internal_server_error', undefined, { cause: new Error('the disk is on fire') }),
    new CouchError('function_error', `a filter has thrown ${ID}`),
    new CouchError('insufficient_storage'),
    new CouchError('unavailable'),
  ]
  for (const fault of faults) {
    const fail = async () => {
      throw fault
    }
    Object.assign(database, { open: fail, update: fail, remove: fail, put: fail, openAttachment: fail })
    for (const path of [
      `/db/${ID}?${QUERY}`,
      `/db/${ID}/${FILE}?${QUERY}`,
      `/db/_design/${ID}`,
      `/db/_local/${ID}`,
    ]) {
      for (const method of ['GET', 'PUT', 'DELETE', 'HEAD']) {
        await call(method, path, { auth: `anna:${SECRET}`, ...(method === 'PUT' && { body: '{}' }) })
      }
    }
  }
  Object.assign(database, whole)
  database.allDocs = async function* () {
    yield Buffer.from('{"rows":[')
    throw new Error(`broken off`)
  } as unknown as DatabaseHandle['allDocs']
  await call('GET', `/db/_all_docs?key="${ID}"&${QUERY}`).catch(() => undefined)
  database.allDocs = async function* () {
    yield Buffer.from('{"rows":[')
    throw new CouchError('document_too_large', ID)
  } as unknown as DatabaseHandle['allDocs']
  await call('GET', `/db/_all_docs?key="${ID}"&${QUERY}`).catch(() => undefined)
  Object.assign(database, whole)
  for (const path of [`/db/${ID}%zz?${QUERY}`, `/db/${'y'.repeat(70_000)}${ID}`, `/%ff${ID}?${QUERY}`]) {
    await call('GET', path).catch(() => undefined)
  }
  await speak(
    server.url,
    `GET http://anna:${SECRET}@localhost/db/${ID} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
  )
  await speak(server.url, `GET /db/${ID}?${QUERY} HTTP/1.1\r\nHost: localhost\r\nX : ${SECRET}\r\n\r\n`)
  const log = server.lines.join('')
  for (const word of [ID, FILE, 'hunter2', SECRET, Buffer.from(`anna:${SECRET}`).toString('base64')]) {
    t.notOk(log.includes(word), word)
  }
  const lines = server.lines.map((line) => JSON.parse(line) as Record<string, unknown>)
  t.match(
    lines.find(({ route }) => route === '/:db/:docid'),
    {
      id: String,
      method: 'GET',
      database: 'db',
      err: { message: 'the disk is on fire' },
      msg: 'a request failed',
    },
    'what is needed to find the fault is there',
  )
  t.match(
    lines.find(({ error }) => error === 'function_error'),
    { route: String, msg: 'a request failed' },
  )
  t.ok(lines.some(({ msg }) => msg === 'an answer broke off while it was sent'))
})
