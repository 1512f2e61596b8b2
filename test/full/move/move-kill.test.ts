/**
 * kill -9 during moves, while devices go on with the old server: afterwards everything is here, the old server has only
 * been read, and devices that go over converge. `MOVE_KILLS=50` for more kills.
 */
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { reachServer } from '../../../src/control/control-socket.ts'
import type { MoveOutcome } from '../../../src/move/moves.ts'
import { startChildServer } from '../../helpers/child-server.ts'
import { startTestServer } from '../../helpers/server.ts'
import { device, remote } from '../../protocol/devices.ts'
import { Random } from '../../protocol/random.ts'

const KILLS = Number(process.env.MOVE_KILLS ?? 6)
const SEED = Number(process.env.MOVE_SEED ?? Date.now() % 1e6)
const NAMES = ['notes', 'plans', 'with/slash'] as const
const ROW = /"seq":"[^"]*",/g

t.setTimeout(60_000 + KILLS * 10_000)

t.test(`${KILLS} times, seed ${SEED}`, async (t) => {
  const random = new Random(SEED)
  const old = await startTestServer(t)
  const here = await startChildServer(t)
  const call = async (method: string, path: string, body?: unknown) => {
    const { status, text, json } = await old.request(method, path, { ...(body !== undefined && { body }) })
    if (status >= 400) throw new Error(`${method} ${path}: ${text}`)
    return json
  }
  const oldFeed = async (name: string) => {
    const { text } = await old.request('GET', `/${encodeURIComponent(name)}/_changes?style=all_docs`)
    return text
  }
  let written = 0
  /** Documents with conflicts, tombstones and attachments, as devices leave them at the old server. */
  const write = async (name: string, count: number) => {
    const docs = Array.from({ length: count }, () => {
      const at = written++
      const ids = [`${at}`.padStart(8, '0'), 'a'.repeat(8)]
      const _attachments = {
        f: { content_type: 'text/plain', data: Buffer.from(`file ${at}`).toString('base64') },
      }
      return {
        _id: `doc-${random.below(1500)}`,
        _rev: `2-${ids[0]}`,
        _revisions: { start: 2, ids },
        text: 'x'.repeat(random.below(2000)),
        ...(random.chance(0.1) && { _deleted: true }),
        ...(random.chance(0.1) && { _attachments }),
      }
    })
    await call('POST', `/${encodeURIComponent(name)}/_bulk_docs`, { new_edits: false, docs })
  }
  for (const name of NAMES) {
    await call('PUT', `/${encodeURIComponent(name)}`)
    await write(name, 1500)
  }
  const [phone, desk] = [await device(t), await device(t)]
  await phone.sync(remote(`${old.url}/notes`).db)
  await desk.sync(remote(`${old.url}/notes`).db)

  const moved = async (): Promise<MoveOutcome> => {
    const controls = await reachServer(here.dataDir)
    if (controls === null) throw new Error('the server is not running')
    return controls.move({ url: `${old.url}/`, databases: null, keepsUuid: false, isMerged: false })
  }
  for (let kill = 0; kill < KILLS; kill++) {
    const ended = moved().catch((error: unknown) => error)
    await delay(random.below(1500))
    await here.kill()
    await ended
    await write('notes', 20)
    await phone.put({ _id: `phone-${kill}` })
    await phone.sync(remote(`${old.url}/notes`).db)
    await here.start()
  }
  await write('notes', 20)
  const before = await Promise.all(NAMES.map(oldFeed))
  const locals = (await old.request('GET', '/notes/_local_docs?include_docs=true')).text

  const outcome = await moved()
  t.same(outcome.failed, [])
  for (const { name, isComplete, notes, oldDigest, newDigest } of outcome.databases) {
    t.ok(isComplete, name)
    t.same(notes, [], name)
    t.equal(newDigest, oldDigest, name)
  }
  t.same(await Promise.all(NAMES.map(oldFeed)), before, 'the old server is as it was')
  t.equal((await old.request('GET', '/notes/_local_docs?include_docs=true')).text, locals)
  for (const name of NAMES) {
    const answer = await fetch(`${here.url}/${encodeURIComponent(name)}/_changes?style=all_docs`)
    const rows = (text: string) =>
      text
        .replace(ROW, '')
        .split('\n')
        .filter((row) => row.includes('"id"'))
    const bare = (text: string) =>
      rows(text)
        .map((row) => row.replace(/,\s*$/, ''))
        .sort()
    t.same(bare(await answer.text()), bare(before[NAMES.indexOf(name)] as string), name)
  }

  await desk.put({ _id: 'of the desk' })
  for (const each of [desk, phone, desk]) await each.sync(remote(`${here.url}/notes`).db)
  const ids = async (db: typeof desk) => {
    const { rows } = await db.allDocs()
    return rows.map(({ id, value }) => `${id} ${value.rev}`).sort()
  }
  t.same(await ids(phone), await ids(desk))
  const { rows } = (await (await fetch(`${here.url}/notes/_all_docs`)).json()) as {
    rows: { id: string; value: { rev: string } }[]
  }
  t.same(rows.map(({ id, value }) => `${id} ${value.rev}`).sort(), await ids(phone))
})
