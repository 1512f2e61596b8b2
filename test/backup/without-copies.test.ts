/** A server whose storage engine has no files: its store makes the backups. */
import t from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { backupFact } from '../../src/backup/backup-health.ts'
import { startMemoryServer } from '../http/memory-server.ts'

t.test('backups and restores are refused with the reason, and are no fault of the server', async (t) => {
  const { url, config, backups } = await startMemoryServer(t)
  await setAdmin(config, 'admin', 'secret')
  const headers = {
    authorization: `Basic ${Buffer.from('admin:secret').toString('base64')}`,
    'content-type': 'application/json',
  }
  const id = '2026-01-01T00-00-00Z'
  const calls: [method: string, path: string, body?: object][] = [
    ['GET', ''],
    ['POST', '', {}],
    ['GET', `/${id}`],
    ['DELETE', `/${id}`],
    ['POST', `/${id}/verify`, {}],
    ['POST', `/${id}/restore`, { database: 'notes' }],
  ]
  for (const [method, path, body] of calls) {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const answer = await fetch(`${url}/_settee/backups${path}`, { method, headers, ...sent })
    t.equal(answer.status, 501, `${method} ${path}`)
    t.match(await answer.json(), {
      error: 'not_implemented',
      reason: /its store makes and restores the backups/,
    })
  }
  const fact = backupFact(await backups.state())
  t.match(fact, { ok: true, reason: /a task of its store/, by_store: true, last: null, interval: 0 })
  backups.startSchedule()
  t.equal((await backups.state()).failures, 0)
})
