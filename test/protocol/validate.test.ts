/** Validate functions and the checks of design documents, over HTTP against a listening server. */
import t, { type Test } from 'tap'
import { call, type ServedServer, serve } from './served.ts'

async function withRules(t: Test, rules: string): Promise<ServedServer> {
  const server = await serve(t)
  await call(server, 'PUT', '/notes')
  await call(server, 'PUT', '/notes/_design/rules', { body: { validate_doc_update: rules } })
  return server
}

t.test('statuses and bodies of refusals', async (t) => {
  const server = await withRules(t, 'function (doc) { if (doc.thrown !== undefined) throw doc.thrown }')
  const cases: [thrown: unknown, status: number, error: string, reason: unknown][] = [
    [{ forbidden: 'no' }, 403, 'forbidden', 'no'],
    [{ forbidden: { a: 1 } }, 403, 'forbidden', { a: 1 }],
    [{ unauthorized: 'who?' }, 401, 'unauthorized', 'who?'],
    ['text', 500, 'unknown_error', 'text'],
  ]
  for (const [thrown, status, error, reason] of cases) {
    const refused = { status, json: { error, reason } }
    const body = { thrown }
    t.match(await call(server, 'PUT', '/notes/x', { body }), refused)
    t.match(await call(server, 'POST', '/notes', { body }), refused)
    t.match(await call(server, 'PUT', '/notes/x?new_edits=false&rev=1-a', { body }), refused)
    const docs = [{ _id: 'x', ...body }]
    const row = { id: 'x', error, reason }
    t.match(await call(server, 'POST', '/notes/_bulk_docs', { body: { docs } }), { status: 201, json: [row] })
    const replicated = {
      new_edits: false,
      docs: [
        { ...docs[0], _rev: '1-a' },
        { _id: `y-${status}`, _rev: '1-a' },
      ],
    }
    const { json } = await call(server, 'POST', '/notes/_bulk_docs', { body: replicated })
    t.same(json, [{ ...row, rev: '1-a' }])
  }
  t.equal((await call(server, 'GET', '/notes/x')).status, 404)
  t.equal((await call(server, 'PUT', '/notes/x', { body: {} })).status, 201)
})

t.test('design documents that are no good', async (t) => {
  const server = await serve(t)
  await call(server, 'PUT', '/notes')
  const put = (body: unknown) => call(server, 'PUT', '/notes/_design/x', { body })
  t.match(await put({ views: [] }), {
    status: 400,
    json: { error: 'invalid_design_doc', reason: '`views` field must have object type' },
  })
  t.match(await put({ views: { a: { map: 'function (doc) {' } } }), {
    status: 400,
    json: { error: 'compilation_error', reason: /^Compilation of the map function in the 'a' view failed: / },
  })
  t.match(await put({ views: { a: { map: 'function (doc) { emit(1) }', reduce: '_count' } } }), {
    status: 201,
  })
})

t.test('a broken function fails the writes, and can be repaired', async (t) => {
  const server = await withRules(t, 'function (doc) { while (doc.endless) {} }')
  await call(server, 'PUT', '/_node/_local/_config/couchdb/os_process_timeout', { body: '"1000"' })
  t.match(await call(server, 'PUT', '/notes/x', { body: { endless: true } }), {
    status: 500,
    json: { error: 'timeout' },
  })
  const hoarder = 'function (doc) { var all = []; while (true) all.push(new Array(10000).fill(doc)) }'
  const { json } = await call(server, 'GET', '/notes/_design/rules')
  const replace = async (rules: string, _rev: string) => {
    const body = { _rev, validate_doc_update: rules }
    return ((await call(server, 'PUT', '/notes/_design/rules', { body })).json as { rev: string }).rev
  }
  await call(server, 'PUT', '/_node/_local/_config/couchdb/os_process_timeout', { body: '"60000"' })
  let rev = await replace(hoarder, (json as { _rev: string })._rev)
  t.match(await call(server, 'PUT', '/notes/x', { body: {} }), {
    status: 500,
    json: { error: 'out_of_memory' },
  })
  rev = await replace('function (', rev)
  t.match(await call(server, 'PUT', '/notes/x', { body: {} }), { json: { error: 'compilation_error' } })
  await replace('function () {}', rev)
  t.equal((await call(server, 'PUT', '/notes/x', { body: {} })).status, 201)
})

t.test(
  'while a function is at work for seconds, other saves are not held up',
  { timeout: 60_000 },
  async (t) => {
    const slow = `function (doc) { if (doc.slow) for (var end = Date.now() + 4000; Date.now() < end; ) {} }`
    const server = await withRules(t, slow)
    await call(server, 'PUT', '/others')
    await call(server, 'PUT', '/others/_design/rules', { body: { validate_doc_update: 'function (doc) {}' } })
    let isDone = false
    const waiting = call(server, 'PUT', '/notes/slow', { body: { slow: true } }).then((answer) => {
      isDone = true
      return answer
    })
    const times: number[] = []
    for (let n = 0; n < 200 && !isDone; n++) {
      const begun = performance.now()
      const database = n % 2 === 0 ? 'others' : 'notes'
      t.equal((await call(server, 'PUT', `/${database}/quick-${n}`, { body: { n } })).status, 201)
      times.push(performance.now() - begun)
    }
    // One that waits for the slow one is one of three at the most; a loaded machine saves dozens.
    t.ok(times.length > 20, `${times.length} are saved before the slow one`)
    times.sort((a, b) => a - b)
    const [median, high] = [0.5, 0.99].map((part) => times[Math.floor(times.length * part)]?.toFixed(1))
    t.comment(`a save takes ${median} ms, the 99th of 100 ${high} ms`)
    t.equal((await waiting).status, 201)
  },
)
