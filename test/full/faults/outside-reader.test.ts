/**
 * Other programs read, checkpoint and copy the files while settee writes, compacts and closes them, as Litestream does.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { cleanEnv, ROOT, WITHOUT_LOADERS } from '../../cli/child.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

const READER = fileURLToPath(new URL('../../faults/outside-reader.ts', import.meta.url))
const ROUNDS = 20
const WRITERS = 8

async function startReader(t: Test, files: readonly string[], copies: string) {
  const [env, ...unset] = WITHOUT_LOADERS
  const args = [process.execPath, READER, JSON.stringify({ files, copies })]
  const child = spawn(env, [...unset, ...args], {
    cwd: ROOT,
    env: cleanEnv(),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const next = async () => {
    const { value, done } = await lines.next()
    if (done) throw new Error('the reader has ended')
    return value
  }
  const end = async () => {
    const exited = once(child, 'exit')
    child.stdin.end()
    for (let line = ''; line !== 'done'; ) line = await next()
    await exited
  }
  return { next, end }
}

/** Writes documents until it is stopped; every answer must be 201. @returns the acknowledged writes */
async function write(server: TestServer, writer: number, isOver: () => boolean): Promise<string[]> {
  const acknowledged: string[] = []
  let rev = ''
  for (let n = 0; !isOver(); n++) {
    const id = `${writer}-${Math.floor(n / 3)}`
    if (n % 3 === 0) rev = ''
    const body = { n, text: 'x'.repeat(2000), ...(rev !== '' && { _rev: rev }) }
    const { status, json, text } = await server.request('PUT', `/notes/${id}`, { body })
    if (status !== 201) throw new Error(`PUT ${id} is ${status}: ${text}`)
    rev = json.rev
    acknowledged.push(`${id} ${rev}`)
  }
  return acknowledged
}

t.test('no write is refused or lost, and the copies are complete', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  const copies = await temporaryFolder(t)
  await server.request('PUT', '/notes')
  const files = [join(dataDir, 'server.sqlite'), join(dataDir, 'databases', 'notes.sqlite')]
  const reader = await startReader(t, files, copies)
  await reader.next()
  let isOver = false
  const writing = Promise.all(Array.from({ length: WRITERS }, (_, n) => write(server, n, () => isOver)))
  for (let round = 0; round < ROUNDS; round++) {
    await reader.next()
    if (round % 5 === 0) {
      t.equal((await server.request('POST', '/notes/_compact', { body: {} })).status, 202)
      t.equal((await server.request('PUT', `/made-${round}`)).status, 201)
    }
  }
  isOver = true
  const acknowledged = (await writing).flat()
  t.ok(acknowledged.length > ROUNDS, `${acknowledged.length} writes were acknowledged`)
  await server.close()
  await reader.end()

  const again = await startTestServer(t, { dataDir })
  const { json } = await again.request('GET', '/notes/_all_docs')
  const winners = new Map(
    (json.rows as { id: string; value: { rev: string } }[]).map((row) => [row.id, row.value.rev]),
  )
  const newest = new Map(acknowledged.map((line) => line.split(' ') as [string, string]))
  t.same([...winners].sort(), [...newest].sort(), 'all that was acknowledged is there')
  t.equal((await again.request('PUT', '/notes/after', { body: {} })).status, 201)
  await again.close()

  for (const name of ['server.sqlite', 'notes.sqlite']) {
    const copy = new Sqlite(join(copies, name))
    t.equal(copy.pragma('integrity_check', { simple: true }), 'ok', `the copy of ${name}`)
    copy.close()
  }
  const restored = new Sqlite(join(copies, 'notes.sqlite'), { readonly: true })
  const rows = restored.prepare('SELECT id, rev FROM doc').raw().all() as [string, string][]
  restored.close()
  t.same(rows.sort(), [...newest].sort(), 'the last one holds everything')
})
