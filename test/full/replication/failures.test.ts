/** Replications with remotes that fail: each failure of a target, silences, and those of revisions with attachments. */
import { randomBytes } from 'node:crypto'
import t from 'tap'
import type { TestServer } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { count, DOCS, DOWN, HTML, replicate, sceneMaker, status } from '../../replication/failing-peers.ts'
import type { Incident } from '../../replication/scripted-remote.ts'

t.setTimeout(240_000)
const scene = sceneMaker(t)
const CUT: Incident = { type: 'cut', bytes: 10 }
const SILENCE: Incident = { type: 'silence' }
const SLOW: Incident = { type: 'slow', pieces: 4, pauseMs: 300 }

/** Failures of either end that pass, so that everything is copied. */
const PASSING: readonly (readonly [what: string, Incident])[] = [
  ['is down', DOWN],
  ['cuts an answer', CUT],
  ['answers with HTML', HTML],
  ['has status 500', status(500)],
  ['is starting', status(503, { 'retry-after': '1' })],
  ['has too many requests', status(429, { 'retry-after': '1' })],
  ['names no time to wait', status(429)],
  ['names a date to wait for', status(429, { 'retry-after': 'Wed, 21 Oct 2015 07:28:00 GMT' })],
  ['is silent', SILENCE],
  ['is slow', SLOW],
]

/** The requests of a replication, by the role of the remote. */
const STEPS = {
  source: [
    /^GET \/full\/$/,
    /^GET \/$/,
    /_local/,
    /_changes/,
    /_bulk_get/,
    /open_revs/,
    /_ensure_full_commit/,
  ],
  target: [/^GET \/empty\/$/, /^GET \/$/, /_local/, /_revs_diff/, /_bulk_docs/, /PUT \/empty\/pic/],
} as const

async function attach(server: TestServer, name: string, bytes = 300_000): Promise<void> {
  const data = randomBytes(bytes).toString('base64')
  const { status } = await server.request('PUT', `/full/${name}`, {
    body: { _attachments: { 'a.png': { content_type: 'image/png', data } } },
  })
  if (status !== 201) throw new Error(`status ${status}`)
}

for (const role of ['source', 'target'] as const) {
  for (const [what, incident] of PASSING) {
    t.test(`a ${role} that ${what}`, { timeout: 60_000 }, async (t) => {
      const { server, remote } = await scene(t)
      await attach(server, 'pic')
      for (const step of STEPS[role]) remote.script(step, incident)
      const ends =
        role === 'source'
          ? { source: `${remote.url}/full`, target: 'empty' }
          : { source: 'full', target: `${remote.url}/empty` }
      const { json } = await replicate(server, { ...ends, connection_timeout: 1000 })
      t.match(json, { ok: true, history: [{ doc_write_failures: 0 }] })
      t.equal(await count(server, 'empty'), DOCS.length + 1)
      const copied = await server.request('GET', '/empty/pic/a.png')
      t.equal(copied.text, (await server.request('GET', '/full/pic/a.png')).text)
      t.match(await replicate(server, ends), { json: { ok: true, no_changes: true } })
    })
  }
}

/** Answers that one document gets, however often it is sent. */
for (const refusal of [status(401), status(403), status(413)]) {
  const code = refusal.type === 'answer' ? refusal.status : 0
  t.test(`status ${code} for a revision with attachments is counted`, async (t) => {
    const { server, remote } = await scene(t)
    await attach(server, 'pic')
    await attach(server, 'other')
    remote.judge((line) => (line.includes('/pic?') ? refusal : null))
    const pull = await replicate(server, { source: `${remote.url}/full`, target: 'empty' })
    t.match(pull.json, { ok: true, history: [{ doc_write_failures: 1, docs_written: DOCS.length + 1 }] })
    await server.request('DELETE', '/empty')
    await server.request('PUT', '/empty')
    const push = await replicate(server, { source: 'full', target: `${remote.url}/empty` })
    t.match(push.json, { ok: true, history: [{ doc_write_failures: 1, docs_written: DOCS.length + 1 }] })
    t.equal((await server.request('GET', '/empty/other/a.png')).status, 200)
  })
}

for (const [code, answer] of [
  [401, { error: 'unauthorized' }],
  [403, { error: 'forbidden' }],
] as const) {
  for (const role of ['source', 'target'] as const) {
    t.test(`a ${role} that answers ${code} ends the replication`, async (t) => {
      const { server, remote } = await scene(t)
      remote.judge((line) => (/^GET \/(full|empty)\/$/.test(line) ? status(code) : null))
      const ends = { source: `${remote.url}/full`, target: `${remote.url}/empty` }
      const local = role === 'source' ? { target: 'empty' } : { source: 'full' }
      t.match(await replicate(server, { ...ends, ...local }), { status: code, json: answer })
    })
  }
}

t.test('redirects of a target are followed with their bodies, and never without end', async (t) => {
  const { server, remote } = await scene(t)
  await attach(server, 'pic')
  const body = { source: 'full', target: `${remote.url}/old` }
  remote.judge((line) => {
    const [, path = ''] = line.split(' ')
    return path.startsWith('/old') ? status(308, { location: path.replace('/old', '/empty') }) : null
  })
  t.match((await replicate(server, body)).json, { ok: true })
  t.equal(await count(server, 'empty'), DOCS.length + 1)
  remote.judge((line) => status(307, { location: line.split(' ')[1] as string }))
  t.match(await replicate(server, { ...body, retries_per_request: 0 }), {
    status: 500,
    json: { error: 'replication_failed', reason: /redirects too often/ },
  })
})

t.test(
  'a continuous replication with a remote that is down says so, and goes on when it is back',
  async (t) => {
    const { server, remote } = await scene(t)
    remote.judge(() => DOWN)
    const body = { source: `${remote.url}/full`, target: 'empty', continuous: true, retries_per_request: 0 }
    const path = `/_scheduler/jobs/${(await replicate(server, body)).json._local_id}`
    const read = async () => (await server.request('GET', path)).json
    await until(async () => (await read()).history.some(({ type }: { type: string }) => type === 'crashed'))
    const { history } = await read()
    t.match(history.find(({ type }: { type: string }) => type === 'crashed').reason, /could not be reached/)
    remote.judge(() => null)
    await until(async () => (await count(server, 'empty')) === DOCS.length)
  },
)

t.test('a clock that jumps neither stops a replication nor repeats it', async (t) => {
  const { server, remote } = await scene(t)
  const source = `${remote.url}/full`
  const { _local_id: id } = (await replicate(server, { source, target: 'empty', continuous: true })).json
  await until(async () => (await count(server, 'empty')) === DOCS.length)
  const { now } = Date
  t.teardown(() => {
    Date.now = now
  })
  for (const [at, years] of [10, -10].entries()) {
    Date.now = () => now() + years * 365 * 86_400_000
    remote.script(/_bulk_get/, status(503, { 'retry-after': new Date(now() + 1000).toUTCString() }))
    await server.request('PUT', `/full/after-${at}`, { body: {} })
    await until(async () => (await count(server, 'empty')) === DOCS.length + at + 1)
  }
  const { json } = await server.request('GET', `/_scheduler/jobs/${id}`)
  t.match(json.info, { docs_written: DOCS.length + 2, doc_write_failures: 0 })
})
