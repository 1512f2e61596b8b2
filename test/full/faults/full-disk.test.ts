/** A disk fills up, to the floor and completely, and is emptied again; the server runs in a separate process. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { withControl } from '../../../src/cli/operate.ts'
import { RESERVED_BYTES } from '../../../src/storage/free-space.ts'
import { type Answer, startServerProcess } from '../../faults/server-process.ts'
import { smallDisk, withSmallDisks } from '../../faults/small-disk.ts'
import { until } from '../../helpers/until.ts'

const FLOOR = 16 * 1024 * 1024
const DISK_MB = 96
const INI = `[settee]\nfree_space_floor = ${FLOOR}\n`

interface Stored {
  /** The newest acknowledged revision of each document; null: deleted. */
  readonly revs: Map<string, string | null>
}

async function setUp(t: Test) {
  const disk = await smallDisk(t, DISK_MB)
  const server = await startServerProcess(t, { dataDir: join(disk.path, 'data'), ini: INI })
  const ballast = join(server.dataDir, 'ballast')
  await until('there is a ballast', () => existsSync(ballast))
  await server.ask('PUT', '/notes')
  const stored: Stored = { revs: new Map() }
  return { disk, server, ballast, stored }
}

function note(n: number) {
  return { _id: `note-${n}`, n, text: 'word '.repeat(1000) }
}

/** Writes notes, and records the acknowledged ones. @returns the last answer's status */
async function write({ server, stored }: Pick<Setting, 'server' | 'stored'>, from: number, count: number) {
  const docs = Array.from({ length: count }, (_, n) => note(from + n))
  const answer = await server.ask('POST', '/notes/_bulk_docs', { docs })
  if (answer.status !== 201) return answer.status
  for (const row of answer.json) if (row.ok) stored.revs.set(row.id, row.rev)
  return answer.status
}

type Setting = Awaited<ReturnType<typeof setUp>>

async function remove({ server, stored }: Setting, id: string): Promise<Answer> {
  const answer = await server.ask('DELETE', `/notes/${id}?rev=${stored.revs.get(id)}`)
  if (answer.status === 200) stored.revs.set(id, null)
  return answer
}

/** Checks that every acknowledged revision is the current one. */
async function allThere(t: Test, { server, stored }: Setting): Promise<void> {
  const { json } = await server.ask('GET', '/notes/_all_docs')
  const rows = json.rows as { id: string; value: { rev: string } }[]
  const live = [...stored.revs].filter(([, rev]) => rev !== null)
  const there = new Map(rows.map(({ id, value }) => [id, value.rev]))
  t.same(
    new Map(live.map(([id]) => [id, there.get(id)])),
    new Map(live),
    'all acknowledged writes are stored',
  )
}

function soundFiles(t: Test, dataDir: string): void {
  for (const name of ['databases/notes.sqlite', 'server.sqlite']) {
    const file = new Sqlite(join(dataDir, name), { readonly: true })
    t.same(file.pragma('integrity_check'), [{ integrity_check: 'ok' }], name)
    file.close()
  }
}

const isRefused = (answer: Answer) => answer.status === 507 && answer.json.error === 'insufficient_storage'

withSmallDisks(t, import.meta.url, () => {
  t.test('below the floor, writes that grow files are refused, and others work', async (t) => {
    const setting = await setUp(t)
    const { disk, server } = setting
    for (let n = 0; n < 4; n++) await write(setting, n * 50, 50)
    await server.ask('PUT', '/notes/with/file', 'a'.repeat(400_000), { 'content-type': 'text/plain' })
    const [first = ''] = setting.stored.revs.keys()
    const withFile = (await server.ask('GET', '/notes/with')).json._rev
    disk.fill(FLOOR - 1_000_000)
    await until('a write is refused', async () => isRefused(await server.ask('POST', '/notes', {})))
    const refused = await server.ask('PUT', '/notes/x', {})
    t.match(refused.json.reason, /1\d\.\d MB are free, and the last 16\.8 MB .* are reserved/)
    await t.test('refused', async (t) => {
      t.match(await server.ask('PUT', '/other'), { status: 507 }, 'a database')
      t.match(await server.ask('PUT', `/notes/${first}`, { _rev: setting.stored.revs.get(first) }), {
        status: 507,
      })
      t.match(
        await server.ask('PUT', '/notes/y/file', 'a'.repeat(9_000_000)),
        { status: 507 },
        'a large upload',
      )
      t.match(await server.ask('PUT', '/notes/y/file', 'a'.repeat(600_000)), { status: 507 }, 'a small one')
      t.match(await server.ask('POST', '/notes/_bulk_docs', { docs: [{ _id: 'a' }, { _id: 'b' }] }), {
        status: 507,
      })
    })
    await t.test('accepted', async (t) => {
      t.match(await remove(setting, first), { status: 200 }, 'a deletion')
      t.match(
        await server.ask('DELETE', `/notes/with/file?rev=${withFile}`),
        { status: 200 },
        'an attachment’s',
      )
      t.match(await server.ask('PUT', '/notes/_local/checkpoint', { last: 1 }), { status: 201 })
      t.match(await server.ask('PUT', '/notes/_security', { members: { roles: [] } }), { status: 200 })
      t.match(await server.ask('GET', '/notes/_all_docs?limit=1'), { status: 200 })
      t.match(await server.ask('POST', '/notes/_changes?limit=1', {}), { status: 200 })
      const [second = ''] = [...setting.stored.revs.keys()].slice(1)
      const purged = { [second]: [setting.stored.revs.get(second)] }
      t.match(await server.ask('POST', '/notes/_purge', purged), { status: 201, json: { purged } })
      setting.stored.revs.set(second, null)
      t.match(await server.ask('POST', '/notes/_compact', {}), { status: 202 })
      await until('it is compacted', async () => !(await server.ask('GET', '/notes')).json.compact_running)
      // The compaction may have freed more than is missing.
      disk.fill(FLOOR - 1_000_000)
      await until('a write is refused again', async () => isRefused(await server.ask('POST', '/notes', {})))
    })
    await t.test('a bulk of both', async (t) => {
      const [, , third = '', fourth = ''] = setting.stored.revs.keys()
      const gone = (id: string) => ({ _id: id, _rev: setting.stored.revs.get(id), _deleted: true })
      const mixed = await server.ask('POST', '/notes/_bulk_docs', { docs: [{ _id: 'new' }, gone(third)] })
      t.match(mixed, { status: 201, json: [{ id: 'new', error: 'insufficient_storage' }, { ok: true }] })
      setting.stored.revs.set(third, null)
      const [rev = ''] = [String(setting.stored.revs.get(fourth))]
      const path = { start: 2, ids: ['f'.repeat(32), rev.slice(2)] }
      const docs = [
        { _id: 'pushed', _rev: '1-abc' },
        { _id: fourth, _rev: `2-${'f'.repeat(32)}`, _revisions: path, _deleted: true },
      ]
      const pushed = await server.ask('POST', '/notes/_bulk_docs', { new_edits: false, docs })
      t.ok(isRefused(pushed), 'the push as a whole is refused')
      t.match(await server.ask('GET', `/notes/${fourth}`), { status: 404 }, 'its deletions are stored')
      setting.stored.revs.set(fourth, null)
    })
    disk.empty()
    await until('writes are taken', async () => (await write(setting, 1000, 1)) === 201)
    await allThere(t, setting)
    const told = server.log().filter(({ msg }) => /^the disk is full|^the disk has free space/.test(msg))
    t.match(told, [{ level: 'warn' }, { level: 'info' }], 'the log tells of both, once')
    t.notMatch(
      server.log().map(({ msg }) => msg),
      ['a request failed'],
    )
    t.match(await server.stop(), { code: 0 })
    soundFiles(t, server.dataDir)
  })

  t.test('what the refusal advises frees space', async (t) => {
    const setting = await setUp(t)
    const { disk, server } = setting
    for (let n = 0; n < 60; n++) {
      const path = `/notes/picture-${n}/file`
      const { json } = await server.ask('PUT', path, Buffer.alloc(500_000, n), {
        'content-type': 'image/png',
      })
      setting.stored.revs.set(`picture-${n}`, json.rev)
    }
    // More than the log and the ballast take.
    disk.fill(FLOOR - 10_000_000)
    await until('a write is refused', async () => isRefused(await server.ask('POST', '/notes', {})))
    const reasonOf = async () => (await server.ask('POST', '/notes', {})).json.reason
    await until('the advice is read', async () => /settee\/keep_days/.test(await reasonOf()))
    const reason = await reasonOf()
    t.match(
      reason,
      /`settee size --free` shows what frees space, and does it: .*deleted documents and old versions, which are kept for 30 days \(settee\/keep_days\)/,
    )
    for (const id of [...setting.stored.revs.keys()].slice(0, 50))
      t.equal((await remove(setting, id)).status, 200)
    const compact = async () => {
      await server.ask('POST', '/notes/_compact', {})
      await until('it is compacted', async () => !(await server.ask('GET', '/notes')).json.compact_running)
    }
    await compact()
    t.ok(isRefused(await server.ask('POST', '/notes', {})), 'deleted documents are kept')
    const { freed } = await withControl(server.dataDir, {}, (controls) =>
      controls.freeSpace({ name: 'versions' }),
    )
    t.ok(freed > 20_000_000, 'the command frees more than 20 MB')
    await until('writes are taken', async () => (await write(setting, 1000, 1)) === 201)
    await allThere(t, setting)
    t.match(await server.stop(), { code: 0 })
    soundFiles(t, server.dataDir)
  })

  t.test('on a full disk, reads work, and the reserved space lets deletions through', async (t) => {
    const setting = await setUp(t)
    const { disk, server, ballast } = setting
    for (let n = 0; n < 8; n++) await write(setting, n * 50, 50)
    for (const name of ['second', 'third']) {
      await server.ask('PUT', `/${name}`)
      await server.ask('PUT', `/${name}/a`, { in: name })
    }
    // Noting an update in server.sqlite may take the ballast, as what does not grow a database may.
    await until('the updates are noted', async () => {
      const { json } = await server.ask('GET', '/_db_updates')
      const noted = json.results.filter(({ type }: { type: string }) => type === 'updated')
      return new Set(noted.map(({ db_name }: { db_name: string }) => db_name)).size === 3
    })
    disk.fill(0)
    const ids = [...setting.stored.revs.keys()]
    t.match(await server.ask('GET', `/notes/${ids[0]}`), { status: 200 }, 'a read')
    await until('writes are refused', async () =>
      isRefused(await server.ask('POST', '/notes', { text: note(1).text })),
    )
    t.ok(existsSync(ballast), 'the reserved space is kept for deletions')
    for (const id of ids.slice(0, 150)) t.equal((await remove(setting, id)).status, 200, 'a deletion')
    t.notOk(existsSync(ballast), 'the ballast is given up for them')
    t.match(await server.ask('PUT', '/notes/_local/checkpoint', { last: 1 }), { status: 201 })
    t.ok(isRefused(await server.ask('PUT', '/notes/x', note(1))), 'growing writes are still refused')
    disk.fill(0)
    t.match(await server.ask('GET', `/notes/${ids[200]}`), { status: 200 }, 'reads without it')
    await server.stop()
    disk.fill(0)
    t.equal(disk.free(), 0)
    await server.start()
    for (const name of ['second', 'third']) {
      t.match(await server.ask('GET', `/${name}/a`), { status: 200, json: { in: name } }, 'after a restart')
    }
    await allThere(t, setting)
    t.ok(isRefused(await server.ask('PUT', '/second/x', note(1))))
    disk.empty()
    await until('writes are taken', async () => (await server.ask('PUT', '/second/b', {})).status === 201)
    await until('there is a ballast again', () => existsSync(ballast) && disk.free() > RESERVED_BYTES)
    t.equal(await write(setting, 2000, 20), 201)
    await allThere(t, setting)
    t.match(await server.stop(), { code: 0 })
    soundFiles(t, server.dataDir)
  })
})
