/** The second half of LiveSync's check: the headers of CORS for each of Obsidian's origins; clients.md 1.2, R12. */
import t from 'tap'
import { startMemoryServer } from '../http/memory-server.ts'
import { checkOrigins, red, SETTINGS, type Target, write } from './livesync-check.ts'

t.test('each origin of Obsidian is let in, for the admin and for an account', async (t) => {
  const { url } = await startMemoryServer(t)
  const admin: Target = { url, auth: 'anna:long-secret' }
  const member: Target = { url, auth: 'bert:bert' }
  t.equal(await write(admin, 'admins/anna', 'long-secret'), 200)
  for (const target of [admin, member]) t.strictSame(red(await checkOrigins(target)), [], 'from the start')
  for (const [path, value] of SETTINGS) t.equal(await write(admin, path, value), 200)
  for (const target of [admin, member])
    t.strictSame(red(await checkOrigins(target)), [], 'and after the setup')
})
