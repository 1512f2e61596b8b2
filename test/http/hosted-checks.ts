/** The table of what hosted mode refuses, put to a server; and how a database looks from outside. */
import type { Test } from 'tap'
import type { Answer, Call } from './client.ts'
import { KINDS, type Refused, type Stored, WAYS } from './hosted-table.ts'

/** A server in hosted mode with two databases that hold the same from before. */
export interface HostedServer {
  /** As the server's admin. */
  readonly call: Call
  readonly host: string
  readonly stored: Stored
}

/** The databases: what is refused is sent to the first alone, and what is stored to both. */
const DB = '/db'
const CONTROL = '/control'

/** What is put into both databases before hosted mode. */
export async function fill(put: (id: string, doc: unknown) => Promise<string>): Promise<Stored> {
  const a = { data: Buffer.from('a picture').toString('base64'), content_type: 'image/png' }
  return {
    pictured: await put('pictured', { n: 0, _attachments: { a } }),
    plain: await put('plain', { n: 0 }),
    design: await put('_design/old', {
      filters: { all: 'function () { return true }' },
      views: { v: { map: 'function (doc) { emit(doc._id) }' } },
      validate_doc_update: 'function () { throw { forbidden: "a stored function has run" } }',
    }),
  }
}

/** Every cell of the table: refused, and nothing of it stored. */
export async function checkTable(
  t: Test,
  server: HostedServer,
  moreOf: (db: string) => unknown,
): Promise<void> {
  let cells = 0
  for (const [method, ways] of Object.entries(WAYS)) {
    for (const [name, way] of Object.entries(ways)) {
      for (const kind of KINDS) {
        cells += 1
        const sent = way(kind, server.stored, `new-${cells}`)
        if (typeof sent === 'string') continue
        await t.test(`${method}: ${name}, ${kind}`, async (t) => {
          for (const refused of sent) await checkRefused(t, server, kind, refused)
          t.strictSame(await lookOf(server.call, DB), await lookOf(server.call, CONTROL), 'nothing is stored')
          t.strictSame(moreOf('db'), moreOf('control'), 'no hidden content is stored either')
        })
      }
    }
  }
}

async function checkRefused(t: Test, server: HostedServer, kind: string, refused: Refused): Promise<void> {
  const { title, method, path, ask, row } = refused
  const headers = { ...ask.headers, referer: `http://${server.host}/` }
  const answer = await server.call(method, DB + path, { ...ask, headers })
  const reason = /design|tombstone/.test(kind)
    ? /accept design documents.* other/
    : /accept attachments.* without/
  if (row === undefined) {
    t.match(answer, { status: 403, json: { error: 'forbidden', reason } }, title)
    return
  }
  t.match(answer.status, 201, title)
  const { docs, new_edits: newEdits } = ask.json as { docs: { _id: string }[]; new_edits: boolean }
  const good = docs.filter(({ _id }) => _id !== row)
  const rows = answer.json as Record<string, unknown>[]
  if (newEdits) {
    t.match(
      rows,
      docs.map(({ _id: id }) => (id === row ? { id, error: 'forbidden', reason } : { ok: true, id })),
      title,
    )
  } else t.match(rows, [{ id: row, rev: /^\d-abc$/, error: 'forbidden', reason }], title)
  t.equal(rows.length, newEdits ? docs.length : 1)
  const alone = await server.call('POST', `${CONTROL}/_bulk_docs`, {
    json: { docs: good, new_edits: newEdits },
  })
  t.equal(alone.status, 201)
}

/** What a database shows of itself; without what tells two databases with the same content apart. */
async function lookOf(call: Call, db: string): Promise<unknown> {
  const get = async (path: string) => (await call('GET', db + path)).json as Record<string, never>
  const { doc_count, doc_del_count, update_seq, sizes = {} } = await get('')
  const docs = await get('/_all_docs?include_docs=true&attachments=true')
  const locals = await get('/_local_docs?include_docs=true')
  const changes = await get('/_changes?include_docs=true&style=all_docs&attachments=true')
  const { external } = sizes as { external: number }
  // A token's epoch is the database's own.
  const text = JSON.stringify({ docs, locals, changes }).replace(/("(?:last_)?seq":"\d+)-[^"]*/g, '$1')
  return { doc_count, doc_del_count, seq: String(update_seq).split('-')[0], external, text }
}

/** What passes beside all that: everything that is neither. */
export async function checkTaken(t: Test, { call }: HostedServer): Promise<void> {
  const none = { _attachments: {} }
  const taken: readonly [title: string, status: number, answer: Answer][] = [
    ['PUT', 201, await call('PUT', `${DB}/empty`, { json: none })],
    ['POST', 201, await call('POST', DB, { json: none })],
    ['COPY', 201, await call('COPY', `${DB}/plain`, { headers: { destination: 'copied' } })],
    [
      'a design document’s copy is data',
      201,
      await call('COPY', `${DB}/_design/old`, {
        headers: { destination: 'once-design' },
      }),
    ],
    [
      'PUT new_edits=false',
      201,
      await call('PUT', `${DB}/empty?new_edits=false`, {
        json: { ...none, _revisions: { start: 1, ids: ['e'] } },
      }),
    ],
    ['_local', 201, await call('PUT', `${DB}/_local/x`, { json: none })],
    ['_bulk_docs', 201, await call('POST', `${DB}/_bulk_docs`, { json: { docs: [{ _id: 'b', ...none }] } })],
  ]
  for (const [title, status, answer] of taken) t.equal(answer.status, status, `${title}: ${answer.text}`)
  t.match((await call('POST', `${DB}/_bulk_docs`, { json: { docs: [{ _id: 'c', ...none }] } })).json, [
    { ok: true, id: 'c' },
  ])
  t.match(
    await call('PUT', `${DB}/_local/y`, { json: { _attachments: { a: { data: '' } } } }),
    { status: 403, json: { error: 'forbidden' } },
    'a _local document’s would be dropped; here it is refused',
  )
}

/** What came before is read as ever. */
export async function checkRead(t: Test, { call, stored }: HostedServer): Promise<void> {
  t.match(await call('GET', `${DB}/_design/old`), { status: 200, json: { _rev: stored.design } })
  t.match(await call('GET', `${DB}/pictured/a`), { status: 200, text: 'a picture' })
  const docs = [{ id: 'pictured' }, { id: '_design/old' }]
  t.match((await call('POST', `${DB}/_bulk_get?attachments=true`, { json: { docs } })).json, {
    results: [
      { docs: [{ ok: { _attachments: { a: { data: Buffer.from('a picture').toString('base64') } } } }] },
      { docs: [{ ok: { _rev: stored.design } }] },
    ],
  })
  t.match((await call('GET', `${DB}/_changes?include_docs=true&filter=_design`)).json, {
    results: [{ id: '_design/old', doc: { _rev: stored.design } }],
  })
}
