/** Two devices and a server of one's own. */
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import type { Stage } from './stage.ts'

export async function twoDevices(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('shared')
  const [desk, phone] = await Promise.all([stage.device(t), stage.device(t, { size: 'phone' })])
  await desk.apply(address)

  // As a person goes there on a phone.
  await phone.page.getByRole('button', { name: 'Menu' }).click()
  await phone.page.getByRole('link', { name: 'Preferences' }).click()
  await phone.page.getByRole('link', { name: 'Synchronization' }).click()
  await phone.page.getByRole('radio', { name: 'Advanced' }).check()
  await phone.page.getByLabel('ADDRESS', { exact: true }).fill(address)
  await phone.page.getByRole('button', { name: 'Apply' }).click()
  await phone.page.getByText('Applied.').waitFor()
  await phone.page.locator('.status-line', { hasText: 'Up to date' }).waitFor()
  t.ok(await phone.page.evaluate(STATUS_IS_IN_VIEW), 'the result of Apply is in view')
  await phone.page.getByRole('link', { name: 'Back to Preferences' }).click()
  await phone.page.getByRole('link', { name: 'Back to the notes' }).click()
  await phone.page.getByRole('link', { name: 'Sync: Up to date' }).waitFor()

  await desk.write('Shopping', 'bread\nmilk')
  await phone.arrived('Shopping')
  await phone.edit('Shopping', 'bread\nmilk\napples')
  await desk.read('Shopping')
  await desk.page.getByText('apples').first().waitFor()
  t.pass('edits travel both ways')

  await phone.context.setOffline(true)
  await phone.edit('Shopping', 'bread\nmilk\nfrom the train')
  await phone.write('On the train', 'without a network')
  await desk.write('At the desk', 'meanwhile')
  await phone.status('Offline')
  await phone.page.locator('.status .finding.is-calm, .status .dot.is-calm').first().waitFor()
  await phone.context.setOffline(false)
  await desk.row('On the train').waitFor()
  await phone.go('#/notes')
  await phone.row('At the desk').waitFor()
  await until('the offline edit is at the server', async () => {
    const { json } = await stage.server.call('GET', '/shared/_all_docs?include_docs=true')
    return (json.rows as { doc: { body: string } }[]).some(({ doc }) => doc.body.includes('from the train'))
  })
  t.pass('what was written offline travels when the network is back')
}

const STATUS_IS_IN_VIEW = `(() => {
  const { top, bottom } = document.querySelector('.status').getBoundingClientRect()
  return top >= 0 && bottom <= innerHeight
})()`

export async function conflict(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('conflicts')
  const [one, other] = await Promise.all([stage.device(t), stage.device(t)])
  await Promise.all([one.apply(address), other.apply(address)])
  await one.write('Plan', 'Monday\nTuesday')
  await other.preferences('about')
  await other.page.getByLabel('Name', { exact: true }).fill('the bicycle')
  await other.page.keyboard.press('Enter')
  await other.go('#/notes')
  await other.arrived('Plan')
  await Promise.all([one.context.setOffline(true), other.context.setOffline(true)])
  await one.edit('Plan', 'Monday\nTuesday by train')
  await other.edit('Plan', 'Monday\nTuesday by bike')
  await Promise.all([one.context.setOffline(false), other.context.setOffline(false)])

  await one.go('#/notes')
  await one.row('Plan').getByText('Conflict').waitFor()
  await one.read('Plan')
  await one.page.getByRole('link', { name: 'Compare the versions' }).click()
  const train = one.page.locator('.version', { hasText: 'by train' })
  const bike = one.page.locator('.version', { hasText: 'by bike' })
  await train.waitFor()
  await bike.waitFor()
  t.same(
    await train.locator('.lines .is-own').allInnerTexts(),
    ['Tuesday by train'],
    'what differs is marked',
  )
  t.match(await train.locator('header').innerText(), /Edited on this device/)
  t.match(await bike.locator('header').innerText(), /Edited on the bicycle .*\d\d:\d\d:\d\d/)
  await bike.getByRole('button', { name: /^Keep version/ }).click()

  await one.page.locator('.sheet').getByText('by bike').waitFor()
  await other.read('Plan')
  await until('one revision is left at the server', async () => {
    const { json } = await stage.server.call('GET', '/conflicts/_all_docs?include_docs=true&conflicts=true')
    const [row] = json.rows
    return row.doc.body.includes('bike') && row.doc._conflicts === undefined
  })
  await other.go('#/notes')
  await other.page.locator('.row', { hasText: 'Conflict' }).waitFor({ state: 'detached' })
  t.pass('the conflict is gone on both devices')
}

export async function booksTagsPictures(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('things')
  const [one, other] = await Promise.all([stage.device(t), stage.device(t)])
  await Promise.all([one.apply(address), other.apply(address)])
  await one.go('#/notes')
  await one.page.getByRole('button', { name: 'New book' }).click()
  await one.page.getByLabel('Name of the book').fill('Garden')
  await one.page.keyboard.press('Enter')
  await one.write('Roses', '# Roses\n\n- [x] cut\n- [ ] water\n')
  await one.page.getByLabel('Book', { exact: true }).selectOption({ label: 'Garden' })
  await one.page.getByLabel('Add a tag').fill('outdoors')
  await one.page.keyboard.press('Enter')
  await one.addPicture('rose.png')

  await other.go('#/notes')
  await other.page.getByRole('link', { name: 'Garden 1' }).click()
  await other.row('Roses').click()
  await other.page.locator('.meta').getByText('outdoors').waitFor()
  const picture = other.page.getByRole('img', { name: 'rose.png' })
  await picture.waitFor()
  await until('the picture is drawn', async () => {
    return (await other.page.evaluate("document.querySelector('.preview img')?.naturalWidth")) === 24
  })
  const ids = await stage.server.ids('things')
  t.same(
    ids.map((id) => id.split(':')[0]),
    ['book', 'file', 'note', 'tag'],
    'each is a document of its own',
  )
  const { json } = await stage.server.call('GET', `/things/${encodeURIComponent(ids[1] ?? '')}`)
  t.equal(json._attachments.index.content_type, 'image/png')

  await one.read('Roses')
  await one.page.getByRole('button', { name: 'Delete', exact: true }).click()
  await other.page.getByText('This note is in the trash.').waitFor()
  t.pass('a deletion travels')
}
