/** `POST /_settee/backups/{id}/verify` of a listening server. */
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { backUp } from './server.ts'

t.test('a verification finds changed and missing files, and that they are back', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  await server.request('PUT', '/notes/a', { body: { text: 'x'.repeat(10_000) } })
  const { id } = (await backUp(server)) as { id: string }
  const folder = join(server.dataDir, 'backups', id)
  const before = (await server.request('GET', `/_settee/backups/${id}`)).json
  t.equal(before.verified_at, before.ended_at)

  const verified = async () => {
    const { status, json } = await server.request('POST', `/_settee/backups/${id}/verify`, { body: {} })
    t.match([status, json], [202, { ok: true }])
    for (;;) {
      const { backups, verifying } = (await server.request('GET', '/_settee/backups')).json
      if (verifying === null) return backups[0]
      t.match(verifying, { id, files_total: 4, percent: Number })
      await delay(5)
    }
  }
  const clean = await verified()
  t.match(clean, { verified: true, damage: [] })
  t.ok(clean.verified_at > before.verified_at)

  const database = join(folder, 'databases', 'notes.sqlite')
  const bytes = await readFile(database)
  const flipped = Buffer.from(bytes)
  flipped[5000] = (flipped[5000] as number) ^ 1
  await writeFile(database, flipped)
  const sums = await readFile(join(folder, 'SHA256SUMS'))
  await rm(join(folder, 'SHA256SUMS'))
  await rm(join(folder, 'server.sqlite'))
  const damaged = await verified()
  t.match(damaged, {
    verified: false,
    damage: [
      'SHA256SUMS: cannot be read (ENOENT)',
      'server.sqlite: is missing',
      'databases/notes.sqlite: does not have the content that was verified',
    ],
  })
  t.equal((await verified()).damage.length, 3, 'damage is listed once')
  await writeFile(database, bytes)
  await writeFile(join(folder, 'SHA256SUMS'), sums)
  t.strictSame((await verified()).damage, ['server.sqlite: is missing'])
})
