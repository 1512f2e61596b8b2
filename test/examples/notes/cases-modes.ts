/** The three modes, and going from one to another. */
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import type { Stage } from './stage.ts'

export async function modes(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  const { page } = device
  await device.preferences()
  const names = await page.locator('.mode').allInnerTexts()
  t.same(
    names.map((name) => name.split('\n')[0]),
    ["Don't Sync", 'Hosted Sync Server', 'Advanced (compatible database)'],
    'exactly three modes',
  )
  await device.status('On this device only')
  t.ok(
    await page.getByRole('radio', { name: 'Hosted Sync Server' }).isChecked(),
    'the hosted server is the default',
  )
  await page.getByText('Until you sign in, your notes stay on this device.').waitFor()
  await device.write('Before signing in', 'kept here')
  t.same(device.sent, [], 'until somebody signs in, nothing leaves the page')

  await device.choose("Don't Sync")
  await device.write(
    'Not synced',
    'A picture of elsewhere: ![it](http://127.0.0.1:9/spy.png) <img src="http://127.0.0.1:9/x">',
  )
  await page.getByRole('button', { name: 'Read' }).click()
  await page.getByRole('link', { name: 'it' }).waitFor()
  await page.reload()
  await device.read('Not synced')
  t.same(device.sent, [], 'nothing leaves the page, a picture in a note included')

  await device.choose('Advanced')
  await page.getByText('You are the operator of this server.').waitFor()
  await page.getByLabel('ADDRESS', { exact: true }).fill('http://anna:anna@127.0.0.1:1/typed')
  await page.reload()
  t.equal(
    await page.getByLabel('ADDRESS', { exact: true }).inputValue(),
    '',
    'an address that was not applied is forgotten',
  )
  t.same(device.sent, [], 'an address that is typed is not asked')
}

export async function changingModes(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  await device.apply(await stage.database('first'))
  await device.write('One', 'for the first database')
  await until('One is sent', async () => (await stage.server.ids('first')).length === 1)
  t.same(
    device.sent.filter(({ url }) => url.pathname !== '/' && !/^\/first(?:\/|$)/.test(url.pathname)),
    [],
    'only / and the database are asked',
  )

  await device.apply(await stage.database('second'))
  await until('One is sent to the second', async () => (await stage.server.ids('second')).length === 1)
  await device.status('Up to date')
  device.sent.length = 0
  await device.write('Two', 'for the second database')
  await until('Two is sent', async () => (await stage.server.ids('second')).length === 2)
  t.ok(
    device.sent.every(({ url }) => /^\/(?:second(?:\/|$)|$)/.test(url.pathname)),
    'the first is not asked any more',
  )

  await device.choose("Don't Sync")
  await device.status('Not syncing')
  device.sent.length = 0
  await device.write('Three', 'for nobody')
  await device.read('One')
  t.same(device.sent, [], 'the old sync has ended')
  t.equal((await stage.server.ids('first')).length, 1)
  t.equal((await stage.server.ids('second')).length, 2)
  t.equal((await device.ids()).filter((id) => id.startsWith('note:')).length, 3, 'every note is there')
}
