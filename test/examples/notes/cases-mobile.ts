/** A phone, over TLS through nginx as docs/proxy.md has it. */
import { spawnSync } from 'node:child_process'
import type { Test } from 'tap'
import { startNginx } from '../../helpers/nginx.ts'
import { until } from '../../helpers/until.ts'
import { ADMIN } from './servers.ts'
import type { Stage } from './stage.ts'

export async function mobile(t: Test, stage: Stage): Promise<void> {
  const { server } = stage
  const [nginx, address] = await Promise.all([
    startNginx(t, { upstream: server.url }),
    stage.database('pocket'),
  ])
  const [desk, phone] = await Promise.all([
    stage.device(t),
    stage.device(t, { size: 'phone', trusting: true }),
  ])
  await desk.apply(address)
  await desk.write('Harbour', 'Look:')
  await desk.addPicture('harbour.png')
  const pictures = async () => (await server.ids('pocket')).filter((id) => id.startsWith('file:'))
  await until('the picture is at the server', async () => (await pictures()).length === 1)

  await phone.choose('Advanced')
  await phone.page.getByLabel('Mobile device').check()
  await phone.apply(`${nginx.url.replace('://', '://anna:anna@')}/pocket`)
  t.match(await phone.finding('no_mobile_filter'), /_design\/mobile/)
  const command = await phone.page.locator('.command code').innerText()
  t.notMatch(command, /anna:anna/)
  // As an admin would paste it, who is asked for his password, on a machine that trusts the certificate.
  const done = spawnSync('sh', ['-c', command.replace('curl -u admin', `curl -sS -k -u ${ADMIN}`)], {
    encoding: 'utf8',
  })
  t.match(done.stdout, /"ok":true/, done.stderr)

  await phone.go('#/notes')
  await phone.arrived('Harbour')
  await phone.read('Harbour')
  await phone.page.getByText('harbour.png: not on this device').waitFor()
  await phone.addPicture('phone.png')
  await desk.read('Harbour')
  await desk.page.getByText('phone.png: not on this device').waitFor()
  t.equal((await pictures()).length, 1, 'the picture of the phone has stayed there')
  const held = (await phone.ids()).filter((id) => id.startsWith('file:'))
  t.equal(held.length, 1, 'the device has only its own picture')
  t.notSame(held, await pictures())

  const feeds = phone.sent.filter(({ url }) => url.pathname === '/pocket/_changes')
  t.ok(feeds.length > 0)
  t.ok(
    feeds.every(({ url }) => url.protocol === 'https:' && url.searchParams.get('filter') === 'mobile/sync'),
    'every feed is filtered, over https',
  )
  await nginx.logged(/GET \/pocket\/_changes.*filter=mobile%2Fsync/)
}
