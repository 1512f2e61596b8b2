/** What `settee size --free` shows and does. */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { reportText } from '../../src/cli/free-command.ts'
import { withControl } from '../../src/cli/operate.ts'
import type { ControlCommands } from '../../src/control/control-commands.ts'
import { CURES, type CureName } from '../../src/core/cure-names.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'

async function backUp(server: TestServer): Promise<string> {
  const { json } = await server.request('POST', '/_settee/backups', { body: {} })
  while ((await server.request('GET', '/_settee/backups')).json.running !== null) await delay(20)
  return json.id
}

/** Writes an attachment of 300 kB. @returns the new revision */
async function attach(server: TestServer, id: string, byte: number, rev?: string): Promise<string> {
  const path = `/notes/${id}/picture.jpg${rev === undefined ? '' : `?rev=${rev}`}`
  const headers = { 'content-type': 'image/jpeg' }
  return (await server.request('PUT', path, { body: Buffer.alloc(300_000, byte), headers })).json.rev
}

t.test('each step is shown with its bytes, frees them, and leaves what is needed', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  const config = (key: string, value: string) =>
    server.request('PUT', `/_node/_local/_config/settee/${key}`, { body: JSON.stringify(value) })
  for (const key of ['backup_keep_daily', 'backup_keep_weekly']) await config(key, '1')
  await server.request('PUT', '/notes')
  const rev = await attach(server, 'a', 1)
  const old = await backUp(server)
  await attach(server, 'a', 2, rev)
  const docs = Array.from({ length: 40 }, (_, n) => ({ _id: `text-${n}`, text: 'words '.repeat(2000) }))
  const { json: rows } = await server.request('POST', '/notes/_bulk_docs', { body: { docs } })
  const gone = rows.map(({ id, rev }: { id: string; rev: string }) => ({
    _id: id,
    _rev: rev,
    _deleted: true,
  }))
  await server.request('POST', '/notes/_bulk_docs', { body: { docs: gone } })
  const newest = await backUp(server)
  await server.stop()
  const manifest = join(dataDir, 'backups', old, 'manifest.json')
  const begun = new Date(Date.now() - 40 * 86_400_000).toISOString()
  const text = (await readFile(manifest, 'utf8')).replace(/"begun_at": ?"[^"]+"/, `"begun_at":"${begun}"`)
  await writeFile(manifest, text)
  for (const folder of ['replaced', 'before-upgrade/databases-9'])
    await mkdir(join(dataDir, folder), { recursive: true })
  const replaced = join(
    dataDir,
    'replaced',
    `notes.${new Date().toISOString().slice(0, 19).replaceAll(':', '-')}Z.sqlite`,
  )
  const copy = join(dataDir, 'before-upgrade', 'databases-9', 'notes.sqlite')
  for (const path of [replaced, copy]) await writeFile(path, Buffer.alloc(50_000, 7))
  await server.start()

  const control = <R>(use: (controls: ControlCommands) => Promise<R>) => withControl(dataDir, {}, use)
  const report = () => control((controls) => controls.readSpace({}))
  const bytesOf = async (name: CureName) =>
    (await report()).cures.find((cure) => cure.name === name)?.bytes ?? 0
  const before = await report()
  t.comment(reportText(before))
  t.match(reportText(before), /^[\d.]+ [MGT]?B are free; settee reserves the last/)
  for (const name of ['surplus-backups', 'upgrade-copies', 'replaced', 'versions'] as const)
    t.ok((await bytesOf(name)) > 40_000, `${name} frees bytes`)
  t.equal(before.keepDays, 30)
  const fileBytes = async () => (await server.request('GET', '/_settee/databases/notes/size')).json.file
  const file = await fileBytes()
  for (const name of CURES) {
    await control((controls) => controls.freeSpace({ name }))
    t.equal(await bytesOf(name), 0, `${name} leaves nothing of its kind`)
    if (name === 'compaction') t.ok((await bytesOf('versions')) > 0, 'a compaction leaves the versions')
  }
  t.ok((await fileBytes()) < file - 400_000, 'the versions are gone from the file')
  const backups = (await readdir(join(dataDir, 'backups'))).filter((name) => /^\d/.test(name))
  t.strictSame(backups, [newest], 'the newest backup stays')
  t.strictSame(await readdir(join(dataDir, 'replaced')), [])
  t.equal((await server.request('GET', '/notes/a/picture.jpg')).status, 200)
  const { json: days } = await server.request('GET', '/_node/_local/_config/settee/keep_days')
  t.equal(days, '30', 'the setting is as before')
  await t.rejects(
    control((controls) => controls.freeSpace({ name: 'all' as CureName })),
    /There is no step all/,
  )

  await server.stop()
  t.equal(
    (await control((controls) => controls.readSpace({}))).cures.length,
    0,
    'cures are listed on the folder of a stopped server',
  )
})
