/** `/_settee/databases` through a listening server: the list, its pages and rights, growth, and conflicts. */
import t from 'tap'
import { startHostedServer } from '../hosted/hosted-server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

// biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
type Json = any

const AT = '/_settee/databases'
const names = (json: Json) => json.databases.map(({ name }: Json) => name)

t.test('the list of the server admin', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  for (const name of ['notes', 'note-book', 'archive', 'open']) await call('PUT', `/${name}`)
  await call('PUT', '/open/_security', { json: { members: { names: [], roles: [] } } })
  await call('PUT', '/notes/_security', { json: { members: { names: ['m'] } } })
  await call('PUT', '/notes/a', { json: { n: 1 } })
  const { status, json } = (await call('GET', AT)) as Json
  t.equal(status, 200)
  t.strictSame(names(json), ['archive', 'note-book', 'notes', 'open'])
  t.match(json.databases[2], {
    doc_count: 1,
    doc_del_count: 0,
    sizes: { file: Number, active: Number, external: Number },
    update_seq: /^1-/,
    partitioned: false,
    compact_running: false,
    access: 'members',
    role: 'admin',
  })
  t.notOk('owner' in json.databases[2], 'owners are of hosted mode')
  t.strictSame(
    json.databases.map(({ access }: Json) => access),
    ['admins', 'admins', 'members', 'everyone'],
  )
  t.equal(json.next, null)

  const pages: string[][] = []
  for (let after: string | null = ''; after !== null; ) {
    const { json: page }: Json = await call('GET', `${AT}?limit=2&after=${after}`)
    pages.push(names(page))
    after = page.next
  }
  t.strictSame(pages, [
    ['archive', 'note-book'],
    ['notes', 'open'],
  ])
  t.strictSame(names(((await call('GET', `${AT}?prefix=note`)) as Json).json), ['note-book', 'notes'])
  const first = ((await call('GET', `${AT}?prefix=note&limit=1`)) as Json).json
  t.strictSame([names(first), first.next], [['note-book'], 'note-book'])
  const last = ((await call('GET', `${AT}?prefix=note&limit=1&after=note-book`)) as Json).json
  t.strictSame([names(last), last.next], [['notes'], null])
  t.strictSame(((await call('GET', `${AT}?prefix=zz`)) as Json).json, { databases: [], next: null })
  t.equal((await call('GET', `${AT}?limit=x`)).status, 400)
  t.match(await call('GET', `${AT}/notes`), { status: 200, json: { name: 'notes', role: 'admin' } })
  t.equal((await call('GET', `${AT}/none`)).status, 404)
})

t.test('an account sees the databases that it may enter', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  const rules: Record<string, object> = {
    'admin-m': { admins: { names: ['m'] }, members: { names: ['x'] } },
    closed: {},
    'of-m': { members: { names: ['m'] } },
    'of-x': { members: { names: ['x'] } },
    public: { members: { names: [], roles: [] } },
    team: { members: { roles: ['_metrics'] } },
  }
  for (const [name, security] of Object.entries(rules)) {
    await call('PUT', `/${name}`)
    await call('PUT', `/${name}/_security`, { json: security })
  }
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  t.equal((await call('GET', AT)).status, 401)
  const seen = async (auth: string) => ((await call('GET', `${AT}`, { auth })) as Json).json.databases
  t.equal((await seen('s:s')).length, 6)
  t.strictSame(
    (await seen('m:m')).map(({ name, role, access }: Json) => [name, role, access]),
    [
      ['admin-m', 'admin', 'members'],
      ['of-m', 'member', 'members'],
      ['public', 'member', 'everyone'],
    ],
  )
  t.strictSame(
    names({ databases: await seen('_metrics:_metrics') }),
    ['public', 'team'],
    'a user sees databases by its roles',
  )
  // A page that finds nothing says where to go on.
  const page = ((await call('GET', `${AT}?limit=1&after=admin-m`, { auth: 'm:m' })) as Json).json
  t.strictSame([names(page), page.next], [['of-m'], 'of-m'])
  t.equal((await call('GET', `${AT}/of-x`, { auth: 'm:m' })).status, 403)
  t.strictSame(((await call('GET', `${AT}/of-m/growth`, { auth: 'm:m' })) as Json).json, {
    database: 'of-m',
    days: [],
  })
})

t.test('a tenant sees its own databases, page by page', async (t) => {
  const server = await startHostedServer(t)
  const call = connect(t, server)
  const root = { auth: 'root:root' }
  for (const name of ['anna', 'bob']) {
    await call('POST', '/_settee/accounts', { json: { name, password: name }, ...root })
  }
  for (const name of ['a1', 'a2', 'a3']) await call('PUT', `/${name}`, { auth: 'anna:anna' })
  await call('PUT', '/b1', { auth: 'bob:bob' })
  const page = (await call('GET', `${AT}?limit=2`, { auth: 'anna:anna' })) as Json
  t.strictSame([names(page.json), page.json.next], [['a1', 'a2'], 'a2'])
  t.match(page.json.databases[0], { owner: 'anna', role: 'admin', access: 'members' })
  const rest = (await call('GET', `${AT}?limit=2&after=a2`, { auth: 'anna:anna' })) as Json
  t.strictSame([names(rest.json), rest.json.next], [['a3'], null])
  t.equal((await call('GET', `${AT}/b1`, { auth: 'anna:anna' })).status, 404)
  t.strictSame(names(((await call('GET', `${AT}?prefix=b`, root)) as Json).json), ['b1'])
})

t.test('documents in conflict, in pages', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  await call('PUT', '/notes')
  const at = `${AT}/notes/conflicts`
  t.strictSame(((await call('GET', at)) as Json).json, { rows: [], bookmark: null, searched: 0 })
  const leaf = (_id: string, rev: string, more: object = {}) => ({ _id, _rev: rev, ...more })
  const docs = [
    leaf('a', '1-aa'),
    ...['b', 'c'].flatMap((id) => [leaf(id, '1-aa'), leaf(id, '1-bb'), leaf(id, '1-cc')]),
    // A deleted leaf beside a live one is no conflict.
    leaf('d', '1-aa'),
    leaf('d', '1-bb', { _deleted: true }),
  ]
  await call('POST', '/notes/_bulk_docs', { json: { docs, new_edits: false } })
  const row = (id: string) => ({ id, rev: '1-cc', leaves: 3, conflicts: ['1-bb', '1-aa'] })
  t.strictSame(((await call('GET', at)) as Json).json, {
    rows: [row('b'), row('c')],
    bookmark: null,
    searched: 4,
  })
  const first = ((await call('GET', `${at}?limit=1`)) as Json).json
  t.strictSame(first.rows, [row('b')])
  const second = ((await call('GET', `${at}?limit=5&bookmark=${first.bookmark}`)) as Json).json
  t.strictSame([second.rows, second.bookmark], [[row('c')], null])
  t.equal((await call('GET', `${at}?bookmark=x`)).status, 400)
})

t.test('long revisions end an answer early, and the bookmark leads to the rest', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  await call('PUT', '/notes')
  const rev = (n: number) => `1-${String(n).padStart(3, '0')}${'r'.repeat(509)}`
  const docs = Array.from({ length: 25 }, (_, at) =>
    Array.from({ length: 101 }, (_, n) => ({ _id: `d${String(at).padStart(2, '0')}`, _rev: rev(n) })),
  ).flat()
  await call('POST', '/notes/_bulk_docs', { json: { docs, new_edits: false } })
  const ids: string[] = []
  let answers = 0
  for (let bookmark: string | null = '0'; bookmark !== null; answers++) {
    const { text, json } = (await call('GET', `${AT}/notes/conflicts?bookmark=${bookmark}`)) as Json
    t.ok(text.length < 1_200_000, `${text.length} characters`)
    for (const { id, conflicts } of json.rows) {
      t.equal(conflicts.length, 100)
      ids.push(id)
    }
    bookmark = json.bookmark
  }
  t.equal(answers, 2)
  t.equal(new Set(ids).size, 25)
})
