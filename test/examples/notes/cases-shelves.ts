/** The trash, and books and tags that are renamed and deleted, on two devices. */
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import type { Stage } from './stage.ts'

export async function trash(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('trash')
  const [one, other] = await Promise.all([stage.device(t), stage.device(t)])
  await Promise.all([one.apply(address), other.apply(address)])
  const { page } = one
  await one.write('Keep', 'this')
  await one.write('Lose', 'that')
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await page.getByText('“Lose” is in the trash.').waitFor()
  await one.row('Lose').waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Undo' }).click()
  await one.row('Lose').waitFor()
  t.pass('a deletion is undone at once')

  await one.read('Lose')
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await other.go('#/notes?shelf=trash')
  await other.row('Lose').click()
  await other.page.getByText('This note is in the trash.').waitFor()
  t.equal(await other.page.getByRole('button', { name: 'Write' }).count(), 0, 'it is only read there')
  await other.page.getByRole('button', { name: 'Restore' }).click()
  await one.row('Lose').waitFor()
  t.pass('another device restores it')

  await one.read('Lose')
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await one.go('#/notes?shelf=trash')
  await page.getByRole('button', { name: 'Empty…' }).click()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Empty…' }).click()
  await page.getByRole('button', { name: 'Delete for good' }).click()
  await page.getByText('The trash is empty.').waitFor()
  await until('it is gone from the server', async () => (await stage.server.ids('trash')).length === 1)
}

export async function labels(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('labels')
  const note = { title: 'Roses', body: 'x', bookId: 'book:1', tags: ['tag:out'] }
  await stage.server.call('POST', '/labels/_bulk_docs', {
    docs: [
      { _id: 'note:1', ...note },
      { _id: 'book:1', name: 'Garden' },
      { _id: 'tag:out', name: 'out' },
    ],
  })
  const device = await stage.device(t)
  const { page } = device
  await device.apply(address)
  await device.go('#/notes?shelf=book:1')
  await page.getByRole('button', { name: 'Rename or delete the book' }).click()
  await page.getByLabel('Name', { exact: true }).fill('Yard')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Yard' }).waitFor()
  await page.getByRole('button', { name: 'Rename or delete the book' }).click()
  await page.getByText('Its 1 note stays, without a book.').waitFor()
  await page.getByRole('button', { name: 'Delete the book', exact: true }).click()
  await page.getByText('The book “Yard” is deleted.').waitFor()
  await page.getByRole('link', { name: 'Yard' }).waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Undo' }).click()
  await page.getByRole('link', { name: 'Yard 1' }).waitFor()

  await page.getByRole('link', { name: 'out 1' }).click()
  await page.getByRole('button', { name: 'Rename or delete the tag' }).click()
  await page.getByLabel('Name', { exact: true }).fill('Outdoors')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Outdoors' }).waitFor()
  await until('its note has the new tag', async () => {
    const { json } = await stage.server.call('GET', '/labels/note:1')
    return json.tags.join() === 'tag:outdoors' && json.bookId === 'book:1'
  })
  await page.getByRole('button', { name: 'Rename or delete the tag' }).click()
  await page.getByRole('button', { name: 'Delete the tag', exact: true }).click()
  await until('the tag is gone', async () => {
    const { json } = await stage.server.call('GET', '/labels/note:1')
    return json.tags.length === 0
  })
  await page.getByRole('button', { name: 'Undo' }).click()
  await page.getByRole('link', { name: 'Outdoors 1' }).waitFor()
  t.pass('books and tags are renamed, deleted, and brought back')
}
