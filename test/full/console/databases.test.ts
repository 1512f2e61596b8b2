/** The databases of the console: the list, who may enter, sizes and conflicts, the time machine, and deletion. */
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { goTo, look, openStage, type Stage, settled } from '../../console/stage.ts'

t.setTimeout(300_000)

const LONG = 'a-database-with-a-very-long-name-that-no-column-of-a-table-was-made-for-0123456789'

/** Databases as people have them: versions, deletions, a conflict, attachments, a public one. */
async function fill({ call }: Stage): Promise<void> {
  for (const name of ['notes', 'archive', 'team', LONG]) await call('PUT', `/${name}`)
  await call('PUT', '/_users/org.couchdb.user:anna', {
    name: 'anna',
    type: 'user',
    roles: [],
    password: 'anna',
  })
  await call('PUT', '/notes/_security', {
    admins: { names: ['anna'], roles: [] },
    members: { names: ['bob', 'carla'], roles: ['family'] },
  })
  await call('PUT', '/archive/_security', { members: { names: [], roles: [] } })
  await call('PUT', '/team/_security', { members: { names: ['anna'], roles: [] } })
  const docs = Array.from({ length: 40 }, (_, n) => ({
    _id: `note:${String(n).padStart(3, '0')}`,
    title: `Note ${n}`,
    body: 'Bread, milk, and a new bulb for the lamp.\nCall the plumber.',
  }))
  await call('POST', '/notes/_bulk_docs', { docs })
  const { json: lamp } = await call('PUT', '/notes/lamp', {
    title: 'The lamp',
    body: 'Bulb: E27, 8 W',
    watt: 9007199254740993n.toString(),
    done: false,
    _attachments: { 'lamp.txt': { content_type: 'text/plain', data: btoa('a lamp') } },
  })
  const { json: brighter } = await call('PUT', '/notes/lamp', {
    _rev: lamp.rev,
    title: 'The lamp',
    body: 'Bulb: E27, 12 W',
    done: false,
    tags: ['house', 'to buy'],
  })
  await call('PUT', '/notes/lamp', {
    _rev: brighter.rev,
    title: 'The lamp in the hall',
    body: 'Bulb: E27, 12 W',
    done: true,
    tags: ['house'],
  })
  const leaves = ['a', 'b', 'c'].map((side) => ({ _id: 'shopping', _rev: `2-${side}${side}`, side }))
  await call('POST', '/notes/_bulk_docs', { docs: leaves, new_edits: false })
}

/** Holds the answers to reads of an address until they are released. */
async function holdReads(page: Page, address: string): Promise<{ release(): Promise<void> }> {
  const { promise: released, resolve } = Promise.withResolvers<void>()
  await page.route(address, async (route) => {
    if (route.request().method() === 'GET') await released
    await route.fallback()
  })
  return {
    async release() {
      const answered = page.waitForResponse(address)
      resolve()
      await answered
      await page.unroute(address)
    },
  }
}

async function deleteSome({ call }: Stage, ids: readonly string[]): Promise<void> {
  const { json } = await call('POST', '/notes/_all_docs', { keys: ids })
  const docs = json.rows.map(({ id, value }: { id: string; value: { rev: string } }) => ({
    _id: id,
    _rev: value.rev,
    _deleted: true,
  }))
  await call('POST', '/notes/_bulk_docs', { docs })
}

const note = (n: number) => `note:${String(n).padStart(3, '0')}`

t.test('databases', async (t) => {
  const stage = await openStage(t)
  const { call } = stage
  const page = await stage.signedIn(t, { hash: '#/databases' })
  await page
    .getByText('No databases yet')
    .or(page.getByRole('link', { name: '_users' }))
    .first()
    .waitFor()
  await fill(stage)

  await t.test('the list, and a new database by the keyboard alone', async (t) => {
    await page.reload()
    await page.getByRole('link', { name: 'notes', exact: true }).waitFor()
    await look(t, page, 'databases')
    await page.getByLabel('Name begins with').fill('no')
    await page.getByRole('link', { name: 'archive' }).waitFor({ state: 'detached' })
    await page.getByLabel('Name begins with').fill('nothing')
    await page.getByText('No database begins with “nothing”').waitFor()
    await page.getByRole('button', { name: 'New database' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'New database' }).waitFor()
    await page.getByLabel('Name', { exact: true }).focus()
    await page.keyboard.type('Diary')
    await page.keyboard.press('Enter')
    await page.getByText('A name has lowercase letters only.').waitFor()
    await page.getByLabel('Name', { exact: true }).fill('diary')
    await page.keyboard.press('Tab')
    await page.keyboard.press('ArrowDown')
    await page.getByRole('textbox', { name: 'People' }).focus()
    await page.keyboard.type('anna')
    await page.keyboard.press('Enter')
    await look(t, page, 'new-database')
    await page.getByLabel('Name', { exact: true }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'diary', level: 1 }).waitFor()
    t.match((await call('GET', '/diary/_security')).json, { members: { names: ['anna'] } })
  })

  await t.test('a database, its sizes and its conflicts', async (t) => {
    await goTo(page, '#/databases/notes')
    await page.getByText('What takes up space').waitFor()
    await page.getByRole('link', { name: 'shopping' }).waitFor()
    await settled(page)
    await page.getByRole('button', { name: 'Compact now' }).click()
    await page.getByText(/Freed|as small as it can be/).waitFor()
    await look(t, page, 'database')
  })

  await t.test('who may enter', async (t) => {
    await goTo(page, '#/databases/notes/access')
    await page.getByRole('button', { name: 'Remove bob' }).waitFor()
    await look(t, page, 'access')
    await page.getByRole('textbox', { name: 'People' }).fill('dora')
    await page.keyboard.press('Enter')
    await page.getByRole('button', { name: 'Remove bob' }).click()
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await page.getByText('bob will lose access').waitFor()
    await look(t, page, 'access-question')
    const held = await holdReads(page, '**/notes/_security')
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    t.match((await call('GET', '/notes/_security')).json, {
      admins: { names: ['anna'] },
      members: { names: ['carla', 'dora'], roles: ['family'] },
    })
    await page.getByLabel('Public').check()
    await page.getByText('This database is public').waitFor()
    await held.release()
    await settled(page)
    t.ok(await page.getByLabel('Public').isChecked(), 'an answer that comes late undoes no change')
    await page.getByRole('link', { name: 'Deleted' }).click()
    await page.getByText('Leave this page?').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Discard changes' }).click()
    await page.getByRole('button', { name: 'Discard changes' }).waitFor({ state: 'detached' })
  })

  await t.test('the versions of a document, and the way back to one', async (t) => {
    const history = '**/notes/history?*'
    await page.route(history, (route) => route.abort())
    await goTo(page, '#/databases/notes/time-machine')
    await page.getByText('The history could not be loaded').waitFor()
    await page.unroute(history)
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.getByRole('link', { name: 'lamp' }).click()
    await page.getByText('The lamp in the hall').first().waitFor()
    await page.getByRole('button', { name: 'Show content' }).click()
    await page.getByText('lamp.txt').waitFor()
    await look(t, page, 'versions')
    await page.getByRole('button', { name: 'Restore this version' }).last().click()
    await page.getByRole('dialog').getByRole('button', { name: 'Restore this version' }).click()
    await page.getByText('lamp was restored').waitFor()
    t.match((await call('GET', '/notes/lamp')).json, { body: 'Bulb: E27, 8 W', watt: '9007199254740993' })
  })

  await t.test('a mass deletion is seen, and taken back', async (t) => {
    await deleteSome(
      stage,
      Array.from({ length: 30 }, (_, n) => note(n)),
    )
    await goTo(page, '#/databases/notes')
    await page.getByText('30 of 42 documents in notes were deleted').waitFor()
    await look(t, page, 'alarm')
    await page.getByRole('link', { name: 'Restore the documents…' }).click()
    await page.getByText('30 documents would change').waitFor()
    await look(t, page, 'rewind-preview')
    await page.getByRole('button', { name: 'Rewind 30 documents' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Rewind 30 documents' }).click()
    await page.getByText('30 documents are as they were').waitFor()
    await look(t, page, 'rewind-done')
    t.match((await call('GET', '/notes')).json, { doc_count: 42 })
    await page.getByRole('button', { name: 'Preview the undo' }).click()
    await page.getByText('30 documents would change').waitFor()
  })

  await t.test('deleted documents', async (t) => {
    await goTo(page, '#/databases/team/deleted')
    await page.getByText('No deleted documents').waitFor()
    await deleteSome(stage, [note(30), note(31), note(32)])
    await goTo(page, '#/databases/notes/deleted')
    await page.getByLabel(note(31)).check()
    await page.getByLabel(note(32)).check()
    await look(t, page, 'deleted')
    await page.getByRole('button', { name: 'Restore 2 documents' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Restore 2 documents' }).click()
    await page.getByText('2 documents are back').waitFor()
    await page.getByLabel(note(31)).waitFor({ state: 'detached' })
    t.equal((await call('GET', `/notes/${note(31)}`)).status, 200)
  })

  await t.test('deleting a database needs its name', async (t) => {
    await goTo(page, `#/databases/${LONG}`)
    await page.getByRole('button', { name: 'Delete database' }).click()
    const dialog = page.getByRole('dialog')
    const button = dialog.getByRole('button', { name: 'Delete database' })
    t.equal(await button.isDisabled(), true)
    await look(t, page, 'delete-database')
    await dialog.getByRole('textbox').fill(LONG)
    await button.click()
    await page.getByRole('heading', { name: 'Databases', level: 1 }).waitFor()
    t.equal((await call('GET', `/${LONG}`)).status, 404)
  })

  await t.test('an account sees what it may, and is told what it may not', (t) => ofAccount(t, stage))
})

async function ofAccount(t: Test, stage: Stage): Promise<void> {
  const page = await stage.signedIn(t, { account: 'anna', hash: '#/databases' })
  await page.getByRole('link', { name: 'team' }).waitFor()
  t.equal(await page.getByRole('button', { name: 'New database' }).count(), 0)
  t.equal(await page.getByRole('link', { name: '_users' }).count(), 0)
  await goTo(page, '#/databases/team')
  await page.getByText('No document has more than one').waitFor()
  t.equal(await page.getByRole('button', { name: 'Delete database' }).count(), 0)
  await look(t, page, 'database-of-member')
  await goTo(page, '#/databases/team/time-machine')
  await page.getByText('The time machine is for admins').waitFor()
  await goTo(page, '#/databases/team/access')
  await page.getByText('but not change it').waitFor()
  await look(t, page, 'access-of-member')
  await goTo(page, '#/databases/notes/time-machine')
  await page.getByRole('link', { name: 'lamp' }).waitFor()
}
