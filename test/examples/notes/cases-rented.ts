/** A database that somebody rents, of another make: pouchdb-server 4.2. */
import type { Test } from 'tap'
import { startPouchdbServer } from '../../../bench/pouchdb-server.ts'
import { until } from '../../helpers/until.ts'
import type { Stage } from './stage.ts'

export async function rented(t: Test, stage: Stage): Promise<void> {
  const peer = await startPouchdbServer()
  t.teardown(() => peer.close())
  const base = peer.origin
  await (await fetch(`${base}/rented`, { method: 'PUT' })).text()
  const [one, other] = await Promise.all([stage.device(t), stage.device(t)])
  await Promise.all([one.apply(`${base}/rented`), other.apply(`${base}/rented`)])
  await one.write('Rented', 'here')
  await one.addPicture('door.png')
  await other.go('#/notes')
  await other.arrived('Rented')
  await other.read('Rented')
  await other.page.getByRole('button', { name: 'Read' }).click()
  await other.page.getByRole('img', { name: 'door.png' }).waitFor()
  await other.edit('Rented', 'and there')
  await one.read('Rented')
  await one.page.getByText('and there').first().waitFor()
  await until('the picture is on both', async () => (await other.ids()).some((id) => id.startsWith('file:')))
  for (const { sent } of [one, other]) {
    t.same(
      sent.filter(({ url }) => !/^\/(?:rented(?:\/|$)|$)/.test(url.pathname)),
      [],
      'only / and the database are asked',
    )
  }
}
