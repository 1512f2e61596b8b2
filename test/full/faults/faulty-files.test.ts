/** Databases whose files are damaged, truncated, or cannot be opened. Each fails alone, and can be deleted. */
import { closeSync, openSync, readFileSync, statSync, truncateSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type ServerProcess, startServerProcess } from '../../faults/server-process.ts'

const DOCS = 300
const PAGE = 8192

type Damage = (path: string) => void

function overwrite(path: string, from: number, to: number): void {
  const file = openSync(path, 'r+')
  writeSync(file, Buffer.alloc(to - from, 0xa5), 0, to - from, from)
  closeSync(file)
}

/** Damage to a file, and the resulting error. */
const DAMAGES: Readonly<Record<string, { readonly damage: Damage; readonly error: string }>> = {
  header: { damage: (path) => overwrite(path, 0, PAGE), error: 'file_corruption' },
  middle: { damage: (path) => overwrite(path, PAGE, statSync(path).size), error: 'file_corruption' },
  'cut-off': { damage: (path) => truncateSync(path, 3 * PAGE), error: 'file_corruption' },
  empty: { damage: (path) => truncateSync(path, 0), error: 'file_corruption' },
  text: { damage: (path) => writeFileSync(path, 'not a database, '.repeat(4000)), error: 'file_corruption' },
}

async function fill(server: ServerProcess, name: string): Promise<void> {
  await server.ask('PUT', `/${name}`)
  const docs = Array.from({ length: DOCS }, (_, n) => ({ _id: `note-${n}`, text: 'word '.repeat(400) }))
  await server.ask('POST', `/${name}/_bulk_docs`, { docs })
}

/** The errors of reads and writes of a database, each tried twice. */
async function errorsOf(t: Test, server: ServerProcess, name: string): Promise<Set<string>> {
  const errors = new Set<string>()
  const asked = [
    ['GET', ''],
    ['GET', '/note-7'],
    ['GET', '/_all_docs?include_docs=true'],
    ['GET', '/_changes?include_docs=true'],
    ['POST', '', { text: 'new' }],
    ['PUT', '/_local/checkpoint', {}],
  ] as const
  for (const [method, path, body] of [...asked, ...asked]) {
    // A fault in the middle of an answer breaks the connection.
    const answer = await server.ask(method, `/${name}${path}`, body).catch(() => null)
    if (answer === null || answer.status < 400) continue
    errors.add(answer.json.error)
    t.equal(answer.status, 500, JSON.stringify(answer.json))
    t.notMatch(answer.json.reason, /\/|sqlite|SELECT/i, 'the reason contains neither a path nor SQL')
  }
  return errors
}

t.test('each damaged database fails alone', async (t) => {
  const server = await startServerProcess(t, { ini: '[couchdb]\nmax_dbs_open = 1\n' })
  const names = Object.keys(DAMAGES)
  for (const name of [...names, 'sound', 'sound2']) await fill(server, name)
  await server.stop()
  for (const [name, { damage }] of Object.entries(DAMAGES)) damage(fileOf(server, name))
  const before = names.map((name) => readFileSync(fileOf(server, name)))
  await server.start()
  t.same((await server.ask('GET', '/_all_dbs')).json, ['_users', ...names, 'sound', 'sound2'].sort())
  for (const [name, { error }] of Object.entries(DAMAGES)) {
    t.same(await errorsOf(t, server, name), new Set([error]), name)
    t.match(await server.ask('GET', '/sound/note-3'), { status: 200 })
  }
  const empty = names.indexOf('empty')
  t.same(readFileSync(fileOf(server, 'empty')), before[empty], 'a file that has lost all is left as it is')
  const infos = (await server.ask('GET', '/_dbs_info')).json as {
    key: string
    error?: string
    info?: unknown
  }[]
  t.equal(infos.length, names.length + 3)
  t.ok(infos.filter(({ key }) => key.startsWith('sound')).every(({ info }) => info !== undefined))
  const told = server.log().filter(({ msg }) => /^the file of a database/.test(msg))
  t.same(told.map(({ database }) => database).sort(), [...names].sort(), 'each is named in the log, once')
  t.notMatch(server.log(), [{ msg: 'a request failed' }])
  for (const name of names) {
    t.match(await server.ask('DELETE', `/${name}`), { status: 200 }, `${name} is deleted`)
    await fill(server, name)
    t.match(await server.ask('GET', `/${name}`), { json: { doc_count: DOCS } }, `${name} is made anew`)
  }
  t.match(await server.stop(), { code: 0 })
})

t.test('a page that is damaged while the server runs', async (t) => {
  const server = await startServerProcess(t)
  await fill(server, 'notes')
  await fill(server, 'sound')
  await server.stop()
  const pages = statSync(fileOf(server, 'notes')).size / PAGE
  overwrite(fileOf(server, 'notes'), Math.floor(pages / 2) * PAGE, Math.floor(pages / 2 + 8) * PAGE)
  await server.start()
  const answers = await Promise.all(
    Array.from({ length: DOCS }, (_, n) => server.ask('GET', `/notes/note-${n}`)),
  )
  const read = answers.filter(({ status }) => status === 200).length
  t.ok(read > 0 && read < DOCS, `${read} of ${DOCS} notes can be read`)
  t.match(await server.ask('GET', '/sound/_all_docs'), { json: { total_rows: DOCS } })
  t.match(await server.stop(), { code: 0 })
})

t.test('with a damaged _users, the server starts, and its admins can log in', async (t) => {
  const server = await startServerProcess(t, {
    ini: '[admins]\nanna = secret\n[chttpd_auth]\niterations = 10\n',
  })
  const anna = { authorization: `Basic ${Buffer.from('anna:secret').toString('base64')}` }
  await server.ask('PUT', '/notes', undefined, anna)
  await server.stop()
  overwrite(fileOf(server, '_users'), 0, PAGE)
  await server.start()
  t.match(await server.ask('PUT', '/notes/x', {}, anna), { status: 201 })
  const bob = { authorization: `Basic ${Buffer.from('bob:secret').toString('base64')}` }
  t.match(await server.ask('GET', '/notes', undefined, bob), { status: 500 })
  t.match(await server.ask('DELETE', '/_users', undefined, anna), { status: 200 })
  t.match(await server.stop(), { code: 0 })
})

function fileOf({ dataDir }: ServerProcess, name: string): string {
  return join(dataDir, 'databases', `${name}.sqlite`)
}
