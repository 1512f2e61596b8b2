/** The hosted server, with which the app begins. */
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import type { Stage } from './stage.ts'

const DATABASE = `userdb-${Buffer.from('anna').toString('hex')}`

export async function hosted(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  const { page } = device
  // What a device brings along from a server of one's own: the filter, and pictures.
  const address = await stage.database('home')
  await stage.server.call('PUT', '/home/_design/mobile', {
    filters: { sync: 'function (doc) { return true }' },
  })
  await device.apply(address)
  await device.write('With a picture', 'Look:')
  await device.addPicture('cat.png')
  await until('the design document is here', async () => (await device.ids()).includes('_design/mobile'))
  await device.status('Up to date')

  await device.signIn('anna', 'wrong')
  await page.getByText('The name or the password is wrong.').waitFor()
  await device.signIn('anna', 'anna')
  await page.getByText('Signed in as anna').waitFor()
  await page.getByText('2 documents stay on this device').waitFor()
  const refusals = await page.locator('.refusals').innerText()
  t.match(refusals, /Picture “cat\.png”\s+This server does not accept attachments/)
  t.match(refusals, /Design document “_design\/mobile”\s+This server does not accept design documents/)
  await device.status('Up to date')
  t.same(
    (await stage.hosted.ids(DATABASE)).map((id) => id.split(':')[0]),
    ['note'],
    'the rest is there',
  )
  await page.reload()
  await page.getByText('2 documents stay on this device').waitFor()
  t.pass('what was refused is known after a reload')

  const stored = (await page.evaluate('JSON.stringify(localStorage)')) as string
  const { json } = await stage.hosted.call('GET', '/_settee/tokens?account=anna')
  t.equal(json.tokens.length, 1, 'the device has a token')
  t.match(stored, /stt_/)

  const [{ id }] = json.tokens
  await stage.hosted.call('DELETE', `/_settee/tokens/${id}?account=anna`)
  await page.reload()
  t.match(
    await device.finding('credentials'),
    /no longer accepts this device \(401\).*Sign out, and sign in/s,
  )
  await page.getByRole('button', { name: 'Sign out' }).click()
  await device.signIn('anna', 'anna')
  await device.status('Up to date')
  await device.read('With a picture')
  t.equal(await page.getByLabel('Add a picture').count(), 0, 'no picture is offered that would be refused')
  await device.preferences()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByText('Until you sign in, your notes stay on this device.').waitFor()
  await until('the token is gone', async () => {
    const { json } = await stage.hosted.call('GET', '/_settee/tokens?account=anna')
    return json.tokens.length === 0
  })
  await device.read('With a picture')
  t.pass('signing out keeps the notes')
}

export async function hostedMobile(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t, { size: 'phone' })
  await device.preferences()
  await device.page.getByLabel('Mobile device').check()
  await device.write('From the phone', 'Look:')
  await device.addPicture('here.png')
  await device.signIn('anna', 'anna')
  await device.page.getByText('Signed in as anna').waitFor()
  await until('the note is sent', async () => {
    const { json } = await stage.hosted.call('GET', `/${DATABASE}/_all_docs?include_docs=true`)
    return (json.rows as { doc: { title: string } }[]).some(({ doc }) => doc.title === 'From the phone')
  })
  await device.status('Up to date')
  t.equal(await device.page.locator('.refusals').count(), 0, 'no picture was offered to the server')
  const feeds = device.sent.filter(({ url }) => url.pathname.endsWith('/_changes'))
  t.ok(feeds.length > 0)
  for (const { url, body } of feeds) {
    t.equal(url.searchParams.get('filter'), '_selector')
    t.same(JSON.parse(body), { selector: { _id: { $not: { $regex: 'file:' } } } })
  }
}
