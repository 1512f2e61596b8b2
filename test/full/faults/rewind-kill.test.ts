/**
 * A large database is rewound during other writes, and the server is killed meanwhile. Each document then has its old
 * or its new content, and a repeated rewind has the same result as an uninterrupted one. `REWIND_DOCUMENTS=100000` runs
 * a longer test, which prints its duration and how long threads were busy.
 */
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { request } from 'undici'
import { startChildServer } from '../../helpers/child-server.ts'

const DOCUMENTS = Number(process.env.REWIND_DOCUMENTS ?? 6000)
const AT_ONCE = 2000
const KILLS = 3

t.setTimeout(DOCUMENTS * 5 + 200_000)

// biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
type Json = any

const idOf = (n: number) => `d${String(n).padStart(6, '0')}`
const text = 'x'.repeat(500)

/** The change to the n-th document after the time of the rewind. */
const fates = ['changed', 'changed', 'deleted', 'unchanged', 'unchanged', 'made later'] as const
const fateOf = (n: number) => fates[n % fates.length]

t.test('kill -9 during a rewind', async (t) => {
  const server = await startChildServer(t)
  const ask = async (method: string, path: string, body?: unknown) => {
    const answer = await request(server.url + path, {
      method: method as 'GET',
      headers: { 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    })
    if (answer.statusCode >= 400) throw new Error(`${method} ${path}: ${await answer.body.text()}`)
    return answer.body
  }
  const json = async (...asked: Parameters<typeof ask>): Promise<Json> => (await ask(...asked)).json()
  const revs = new Map<string, string>()
  const put = async (docs: readonly { readonly _id: string }[]) => {
    for (let at = 0; at < docs.length; at += AT_ONCE) {
      const rows = await json('POST', '/notes/_bulk_docs', { docs: docs.slice(at, at + AT_ONCE) })
      for (const { id, rev } of rows) revs.set(id, rev)
    }
  }
  await ask('PUT', '/notes')
  await ask('PUT', '/other')
  const all = Array.from({ length: DOCUMENTS }, (_, n) => n)
  await put(all.filter((n) => fateOf(n) !== 'made later').map((n) => ({ _id: idOf(n), n, text })))
  await delay(5)
  const then = new Date().toISOString()
  await delay(5)
  await put(
    all
      .filter((n) => fateOf(n) !== 'unchanged')
      .map((n) => {
        const rev = revs.get(idOf(n))
        const parent = rev === undefined ? {} : { _rev: rev }
        return fateOf(n) === 'deleted'
          ? { _id: idOf(n), ...parent, _deleted: true }
          : { _id: idOf(n), ...parent, n: 'spoilt', text }
      }),
  )

  /** The `n` of each document; undefined if the document does not exist. */
  const state = async () => {
    const { rows } = await json('GET', '/notes/_all_docs?include_docs=true')
    const found = new Map<string, unknown>()
    for (const { id, doc } of rows) found.set(id, doc.n)
    return found
  }
  const before = (n: number) =>
    fateOf(n) === 'unchanged' ? n : fateOf(n) === 'deleted' ? undefined : 'spoilt'
  const after = (n: number) => (fateOf(n) === 'made later' ? undefined : n)

  const wanted = `/_settee/databases/notes/rewind`
  const dry = (await (await ask('POST', wanted, { at: then, dry_run: true })).text()).trim().split('\n')
  let inTheMidst = 0
  for (let kill = 0; kill < KILLS; kill++) {
    const lines = await ask('POST', wanted, { at: then })
    let seen = ''
    try {
      for await (const chunk of lines) {
        seen += String(chunk)
        const done = Number(/.*"looked_at":(\d+)/s.exec(seen)?.[1] ?? 0)
        if (done > (DOCUMENTS * kill) / (2 * KILLS)) process.kill(server.pid(), 'SIGKILL')
      }
    } catch {
      // The request ends with the server.
    }
    await server.kill()
    await server.start()
    const now = await state()
    let done = 0
    for (const n of all) {
      const is = now.get(idOf(n))
      if (is !== before(n) && is !== after(n)) t.fail(`${idOf(n)} is ${is}`)
      if (is === after(n) && before(n) !== after(n)) done += 1
    }
    if (done > 0 && done < (DOCUMENTS * 4) / 6) inTheMidst += 1
  }
  t.ok(inTheMidst > 0, 'at least one kill was in the midst')

  const saves: number[] = []
  const tasks = new Set<string>()
  const ending = new AbortController()
  const saving = (async () => {
    for (let n = 0; !ending.signal.aborted; n++) {
      const began = performance.now()
      await ask('PUT', `/other/s${n}`, {})
      saves.push(performance.now() - began)
      for (const { type } of await json('GET', '/_active_tasks')) tasks.add(type)
      await delay(5)
    }
  })()
  const began = performance.now()
  const lines = (await (await ask('POST', wanted, { at: then })).text()).trim().split('\n')
  const ms = performance.now() - began
  ending.abort()
  await saving
  t.ok(tasks.has('database_rewind'), 'it is among the active tasks')
  t.match(JSON.parse(lines.at(-1) ?? ''), {
    done: true,
    looked_at: DOCUMENTS,
    counts: { refused: 0, newer: 0 },
  })
  const now = await state()
  for (const n of all) if (now.get(idOf(n)) !== after(n)) t.fail(`${idOf(n)} is ${now.get(idOf(n))}`)
  const again = (await (await ask('POST', wanted, { at: then })).text()).trim().split('\n')
  const counts = { restored: 0, recreated: 0, deleted: 0, unchanged: DOCUMENTS }
  t.match(JSON.parse(again.at(-1) ?? ''), { counts })
  const { doc_count, doc_del_count } = await json('GET', '/notes')
  const gone = all.filter((n) => fateOf(n) === 'made later').length
  t.same([doc_count, doc_del_count], [DOCUMENTS - gone, gone])
  t.match(JSON.parse(dry.at(-1) ?? ''), { done: true, looked_at: DOCUMENTS })
  saves.sort((a, b) => a - b)
  const p99 = saves[Math.floor(saves.length * 0.99)] ?? 0
  t.comment(`the last rewind: ${ms.toFixed(0)} ms; ${saves.length} saves beside it, p99 ${p99.toFixed(1)} ms`)
})
