/** A server is killed during a backup: its remains are not a backup, and the next one removes them. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { request } from 'undici'
import { backUp, filesOf, wrongSums } from '../../backup/server.ts'
import { startChildServer } from '../../helpers/child-server.ts'
import type { TestServer } from '../../helpers/server.ts'

const KILLS = 4

t.setTimeout(280_000)

t.test('kill -9 during a backup', async (t) => {
  const child = await startChildServer(t)
  const ask = async (method: string, path: string, options: { readonly body?: unknown } = {}) => {
    const { body } = options
    const answer = await request(child.url + path, {
      method: method as 'GET',
      headers: { 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    })
    const text = await answer.body.text()
    return { status: answer.statusCode, headers: answer.headers, text, json: JSON.parse(text) }
  }
  const server: Pick<TestServer, 'request'> = { request: ask }
  await ask('PUT', '/notes')
  for (let round = 0; round < 10; round++) {
    const docs = Array.from({ length: 1000 }, (_, n) => ({ _id: `${round}-${n}`, text: 'x'.repeat(2000) }))
    await ask('POST', '/notes/_bulk_docs', { body: { docs } })
  }
  const good = await backUp(server)
  const folder = join(child.dataDir, 'backups')
  const left: string[] = []
  for (let kill = 0; kill < KILLS; kill++) {
    await ask('PUT', `/notes/new-${kill}`, { body: {} })
    const { status } = await ask('POST', '/_settee/backups', { body: {} })
    t.equal(status, 202)
    // Each kill comes later in the backup.
    await delay(kill * 150)
    await child.kill()
    const names = await readdir(folder)
    left.push(...names.filter((name) => name.endsWith('.unfinished')))
    for (const name of names.filter((each) => !each.endsWith('.unfinished'))) {
      t.strictSame(await wrongSums(join(folder, name)), [], `${name} is whole`)
    }
    await child.start()
    const { json } = await ask('GET', '/_settee/backups')
    for (const { id, verified } of json.backups) t.ok(verified && names.includes(id), id)
    t.equal((await ask('GET', '/notes')).json.doc_count, 10_001 + kill)
  }
  t.ok(left.length > 0, 'at least one was in the midst')
  const last = await backUp(server)
  t.match(last, { verified: true, databases: 2 })
  const names = await readdir(folder)
  t.strictSame(
    names.filter((name) => name.endsWith('.unfinished')),
    [],
  )
  t.ok(names.includes(good?.id ?? '') && names.includes(last?.id ?? ''))
  const files = await filesOf(join(folder, last?.id ?? ''))
  t.ok(files.includes('databases/notes.sqlite') && !files.some((file) => /-(?:wal|shm|journal)$/.test(file)))
})
