/** A restore in hosted mode: who owns what stays, and what it takes is counted anew. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { request } from 'undici'
import { temporaryFolder } from '../helpers/server.ts'
import { startHostedServer } from './hosted-server.ts'

t.test('the owner, his quota and his usage', async (t) => {
  const { url, dataDir, hosted } = await startHostedServer(t)
  const { databases, owners, usage } = hosted
  await databases.create('notes', 'anna')
  const put = async (id: string, auth = 'anna:anna') => {
    const authorization = `Basic ${Buffer.from(auth).toString('base64')}`
    const { statusCode, body } = await request(`${url}/notes/${id}`, {
      method: 'PUT',
      headers: { authorization, 'content-type': 'application/json' },
      body: '{}',
      reset: true,
    })
    await body.dump()
    return statusCode
  }
  t.equal(await put('a'), 201)
  const copy = join(await temporaryFolder(t), 'notes.sqlite')
  const file = new Sqlite(join(dataDir, 'databases', 'notes.sqlite'), { readonly: true })
  file.prepare('VACUUM INTO ?').run(copy)
  file.close()
  for (const id of ['b', 'c', 'd']) t.equal(await put(id), 201)
  await usage.settle()
  t.equal(usage.of('notes').documents, 4)

  await (await databases.prepareRestore('notes', copy)).finish()
  t.equal(owners.ownerOf('notes'), 'anna')
  await usage.settle()
  t.equal(usage.of('notes').documents, 1, 'what it takes now')
  t.equal(usage.sumOf('anna').documents, 1)
  t.equal(await put('e'), 201)
  t.equal(await put('f', 'bob:bob'), 404)
  await usage.settle()
  t.equal(usage.of('notes').documents, 2, 'and from now on')

  await (await databases.prepareRestore('other', copy)).finish()
  t.equal(owners.ownerOf('other'), undefined, 'a new one is nobody’s')
  await databases.beginAnew('notes')
  t.equal(owners.ownerOf('notes'), 'anna')
  t.equal(await put('g'), 201)
  await usage.settle()
  t.equal(usage.of('notes').documents, 3)
})
