/** Documents that the target of a replication refuses: they are counted, and everything else is copied. */
import t from 'tap'
import { count, replicate, sceneMaker } from './failing-peers.ts'
import type { ScriptedRemote } from './scripted-remote.ts'

const scene = sceneMaker(t)

const REV = '1-967a00dff5e02add41819138abb3284d'
const nested = (levels: number) =>
  `{"_id":"deep","_rev":"${REV}","a":${'['.repeat(levels)}${']'.repeat(levels)}}`

/** Documents that a CouchDB-compatible source may have, and settee does not accept. */
const BROKEN: Readonly<Record<string, string>> = {
  'a map function that does not compile': doc('_design/map', { views: { v: { map: 'function (' } } }),
  'a reduce function that does not compile': doc('_design/reduce', {
    views: { v: { map: 'function () {}', reduce: 'function (' } },
  }),
  'views that are no object': doc('_design/views', { views: 5 }),
  'filters that are no object': doc('_design/filters', { filters: 'x' }),
  'an unknown special member': doc('special', { _unknown: 1 }),
  'attachments that are no object': doc('attachments', { _attachments: 5 }),
  'an id that is too long': doc('i'.repeat(9000), {}),
  'an id that is reserved': doc('_reserved', {}),
  'nesting that is too deep': nested(700),
  'a lone surrogate': `{"_id":"surrogate","_rev":"${REV}","text":"\\ud800"}`,
}

function doc(id: string, members: object): string {
  return JSON.stringify({ _id: id, _rev: REV, ...members })
}

const GOOD = Array.from({ length: 60 }, (_, n) => doc(`good${n}`, { n }))

/** Lets the database `full` of the remote have these documents, in this order. */
function pretend(remote: ScriptedRemote, texts: readonly string[]): void {
  const docs = new Map(texts.map((text) => [JSON.parse(text)._id as string, text]))
  const row = (id: string, at: number) => ({ seq: `${at + 1}-x`, id, changes: [{ rev: REV }] })
  const answer = (body: string) => ({ type: 'answer', status: 200, body }) as const
  remote.judge((line, body) => {
    if (/^GET \/full\/$/.test(line))
      return answer(JSON.stringify({ update_seq: `${docs.size}-x`, instance_start_time: '0' }))
    if (line.includes('/full/_changes')) {
      const since = Number.parseInt(/since=(\d+)/.exec(line)?.[1] ?? '0', 10)
      const results = [...docs.keys()].map(row).slice(since, since + 25)
      const reached = since + results.length
      return answer(JSON.stringify({ results, last_seq: `${reached}-x`, pending: docs.size - reached }))
    }
    if (!line.includes('/full/_bulk_get')) return null
    const asked = JSON.parse(body).docs as { id: string }[]
    const results = asked.map(({ id }) => `{"id":${JSON.stringify(id)},"docs":[{"ok":${docs.get(id)}}]}`)
    return answer(`{"results":[${results.join()}]}`)
  })
}

t.test('documents that are not valid do not stop a pull, wherever they stand', async (t) => {
  const { server, remote } = await scene(t)
  const all = [
    ...Object.values(BROKEN),
    ...GOOD,
    ...Object.values(BROKEN).map((text) => text.replace('"_id":"', '"_id":"z')),
  ]
  // The ids of the second half are ordinary, and so are those of their design documents.
  const stillBroken = 5
  pretend(remote, all)
  const body = { source: `${remote.url}/full`, target: 'empty' }
  const { json } = await replicate(server, body)
  const failures = Object.keys(BROKEN).length + stillBroken
  t.match(json, {
    ok: true,
    history: [{ doc_write_failures: failures, docs_written: all.length - failures }],
  })
  t.equal(await count(server, 'empty'), all.length - failures)
  t.match(await replicate(server, body), { json: { ok: true, no_changes: true } })
})

for (const [what, text] of Object.entries(BROKEN)) {
  t.test(`a document that is refused alone is counted: ${what}`, async (t) => {
    const { server, remote } = await scene(t)
    pretend(remote, [text])
    const body = { source: `${remote.url}/full`, target: 'empty' }
    t.match((await replicate(server, body)).json, { ok: true, history: [{ doc_write_failures: 1 }] })
    t.match(await replicate(server, body), { json: { ok: true, no_changes: true } })
  })
}

const LASTING = [
  'compilation_error',
  'invalid_design_doc',
  'doc_validation',
  'partition_overflow',
  'TypeError',
  'unknown_error',
]
for (const error of LASTING) {
  t.test(`a row with ${error} is counted at once by a push`, async (t) => {
    const { server, remote } = await scene(t)
    const body = JSON.stringify([{ id: 'n1', rev: REV, error, reason: 'it is so' }])
    remote.script(/_bulk_docs/, { type: 'answer', status: 201, body })
    const call = { source: 'full', target: `${remote.url}/empty`, retries_per_request: 0 }
    t.match((await replicate(server, call)).json, { ok: true, history: [{ doc_write_failures: 1 }] })
    t.match((await replicate(server, call)).json, { ok: true, no_changes: true })
  })
}

for (const error of ['timeout', 'out_of_memory', 'internal_server_error']) {
  t.test(`a row with ${error} is counted when no further try has helped`, async (t) => {
    const { server, remote } = await scene(t)
    const answer = (error: string) => {
      const body = JSON.stringify([{ id: 'n1', rev: REV, error, reason: 'perhaps' }])
      return { type: 'answer', status: 201, body } as const
    }
    const call = {
      source: 'full',
      target: `${remote.url}/empty`,
      retries_per_request: 1,
      worker_batch_size: 100,
    }
    let tries = 0
    // A busy machine may divide the documents into several requests.
    remote.judge((line, body) => {
      if (!line.includes('_bulk_docs') || !body.includes('"n1"') || tries === 2) return null
      tries += 1
      return answer(error)
    })
    t.match((await replicate(server, call)).json, { ok: true, history: [{ doc_write_failures: 1 }] })
    t.match((await replicate(server, call)).json, { ok: true, no_changes: true })
  })
}

t.test('a row with an error of the moment ends a replication that has no more tries', async (t) => {
  const { server, remote } = await scene(t)
  for (const error of [
    'service_unavailable',
    'service unavailable',
    'insufficient_storage',
    'too_many_requests',
  ]) {
    const body = JSON.stringify([{ id: 'n1', rev: REV, error, reason: 'now' }])
    remote.script(/_bulk_docs/, { type: 'answer', status: 201, body })
    const call = { source: 'full', target: `${remote.url}/empty`, retries_per_request: 0 }
    t.match(await replicate(server, call), { status: 500, json: { error: 'replication_failed' } }, error)
  }
})

const REFUSALS = [
  [400, 'illegal_docid'],
  [400, 'bad_request'],
  [412, 'missing_stub'],
  [400, 'doc_validation'],
  [500, 'compilation_error'],
] as const
for (const [status, error] of REFUSALS) {
  t.test(`a target that refuses a whole batch for one document: ${status} ${error}`, async (t) => {
    const { server, remote } = await scene(t)
    const body = JSON.stringify({ error, reason: 'n7' })
    remote.judge((line, sent) =>
      line.includes('_bulk_docs') && sent.includes('"n7"') ? { type: 'answer', status, body } : null,
    )
    const call = { source: 'full', target: `${remote.url}/empty`, retries_per_request: 1 }
    t.match((await replicate(server, call)).json, {
      ok: true,
      history: [{ docs_written: 59, doc_write_failures: 1 }],
    })
    t.equal(await count(server, 'empty'), 59)
  })
}

t.test('a body that breaks on its way once loses no document', async (t) => {
  const { server, remote } = await scene(t)
  const body = JSON.stringify({ error: 'bad_request', reason: 'invalid UTF-8 JSON' })
  remote.script(
    /_bulk_docs/,
    ...Array.from({ length: 3 }, () => ({ type: 'answer', status: 400, body }) as const),
  )
  const call = { source: 'full', target: `${remote.url}/empty` }
  const { json } = await replicate(server, call)
  t.match(json, { ok: true, history: [{ docs_written: 60, doc_write_failures: 0 }] })
})

t.test('revisions that _revs_diff refuses are counted', async (t) => {
  const { server, remote } = await scene(t)
  const body = JSON.stringify({ error: 'bad_request', reason: 'Invalid rev format' })
  remote.judge((line, sent) =>
    line.includes('_revs_diff') && sent.includes('"n7"') ? { type: 'answer', status: 400, body } : null,
  )
  const call = { source: 'full', target: `${remote.url}/empty`, retries_per_request: 0 }
  t.match((await replicate(server, call)).json, {
    ok: true,
    history: [{ docs_written: 59, doc_write_failures: 1 }],
  })
})

t.test('a design document with attachments that the target does not compile is counted', async (t) => {
  const { server, remote } = await scene(t)
  const attachment = { content_type: 'text/plain', data: 'aGVsbG8=' }
  await server.request('PUT', '/full/_design/app', { body: { _attachments: { a: attachment } } })
  for (const status of [400, 500]) {
    const body = JSON.stringify({ error: 'compilation_error', reason: 'no' })
    remote.judge((line) =>
      line.startsWith('PUT /empty/_design/app') ? { type: 'answer', status, body } : null,
    )
    const call = { source: 'full', target: `${remote.url}/empty`, retries_per_request: 0, since_seq: 0 }
    t.match((await replicate(server, call)).json, { ok: true, history: [{ doc_write_failures: 1 }] })
  }
})
