/** The overview: health in words, alarms, plots of the samples, backups, tasks; and an account's own. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { writePast } from '../../console/past.ts'
import { goTo, look, openStage, type Stage, settled } from '../../console/stage.ts'

t.setTimeout(300_000)

async function deleteMost(stage: Stage): Promise<void> {
  await stage.call('PUT', '/notes')
  const docs = Array.from({ length: 60 }, (_, n) => ({ _id: `note-${n}`, text: `number ${n}` }))
  const { json } = await stage.call('POST', '/notes/_bulk_docs', { docs })
  const deleted = json
    .slice(0, 40)
    .map(({ id, rev }: { id: string; rev: string }) => ({ _id: id, _rev: rev, _deleted: true }))
  await stage.call('POST', '/notes/_bulk_docs', { docs: deleted })
  for (;;) {
    const { json: list } = await stage.call('GET', '/_settee/alarms')
    if (list.alarms.length > 0) return
  }
}

async function backUp(stage: Stage): Promise<void> {
  await stage.call('POST', '/_settee/backups', {})
  for (;;) {
    const { json } = await stage.call('GET', '/_settee/backups')
    if (json.running === null && json.backups.length > 0) return
  }
}

t.test('a server admin sees how the server is', async (t) => {
  const stage = await openStage(t, { prepare: writePast })
  await deleteMost(stage)
  await backUp(stage)
  const page = await stage.signedIn(t, { hash: '#/overview' })

  await t.test('health, alarms, plots and backups', async (t) => {
    await page.getByText('40 of 60 documents in notes were deleted').waitFor()
    await page.getByText('Well, with 2 notes').waitFor()
    await page.getByText('verified', { exact: true }).waitFor()
    await page.locator('.plot canvas').nth(5).waitFor()
    t.equal(await page.locator('.plot canvas').count(), 6)
    t.match(
      await page.locator('.plot-card', { hasText: 'Requests' }).innerText(),
      /Mean [\d.]+\/(s|min), highest/,
    )
    await look(t, page, 'overview')
    await page.locator('.plot-card .u-over').first().hover()
    t.match(
      await page.locator('.plot-card').nth(3).innerText(),
      /At \d\d:\d\d/,
      'all plots show the same time',
    )
  })

  await t.test('the same numbers as a table, and the month, by the keyboard', async (t) => {
    await page.getByRole('button', { name: 'As a table' }).focus()
    await page.keyboard.press('Enter')
    await page.getByText('The mean of each hour').waitFor()
    t.ok((await page.locator('.table tbody tr').count()) >= 22)
    await look(t, page, 'overview-table')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await page.getByText('The mean of each day').waitFor()
    t.ok((await page.locator('.table tbody tr').count()) >= 20)
    await page.getByRole('button', { name: 'As a table' }).click()
    await page.locator('.plot canvas').first().waitFor()
  })

  await t.test('an alarm leads to the time machine, and is dismissed after a question', async (t) => {
    t.match(
      await page.getByRole('link', { name: 'Restore the documents' }).getAttribute('href'),
      /^#\/databases\/notes\/time-machine\?at=20\d\d-/,
    )
    await page.getByRole('button', { name: 'Dismiss' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('No document changes').waitFor()
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    t.equal((await stage.call('GET', '/_settee/alarms')).json.alarms.length, 1)
    await page.getByRole('button', { name: 'Dismiss' }).click()
    await dialog.getByRole('button', { name: 'Dismiss' }).click()
    await page.getByText('40 of 60').waitFor({ state: 'detached' })
    t.same((await stage.call('GET', '/_settee/alarms')).json.alarms, [])
  })

  await t.test('a fault comes first, with what to do', async (t) => {
    await stage.call('PUT', '/_node/_local/_config/settee/free_space_floor', '1000000000000000')
    while ((await stage.call('GET', '/_up?deep=1')).status !== 503) await sleep(50)
    await goTo(page, '#/doctor')
    await goTo(page, '#/overview')
    await page.getByText('1 fault', { exact: true }).waitFor()
    t.match(await page.locator('.verdict').first().innerText(), /Disk\s+The disk is full: .* free/)
    await look(t, page, 'overview-fault')
    await stage.call('DELETE', '/_node/_local/_config/settee/free_space_floor')
  })

  await t.test('when the server stops, what was loaded stays', async (t) => {
    await page.clock.install()
    await page.route('**/_settee/samples*', (route) => route.abort())
    await goTo(page, '#/doctor')
    await goTo(page, '#/overview')
    await page.getByText('The server did not answer.').waitFor()
    t.ok(await page.getByText('Running now').isVisible(), 'the other parts are there')
    await page.unroute('**/_settee/samples*')
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.locator('.plot canvas').first().waitFor()
  })
})

t.test('an account sees its own', async (t) => {
  const stage = await openStage(t, { ini: '[settee]\nmode = hosted\n' })
  const account = { name: 'anna', password: 'anna', quota: { bytes: 1_000_000, databases: 2 } }
  t.equal((await stage.call('POST', '/_settee/accounts', account)).status, 201)
  const page = await stage.signedIn(t, { account: 'anna', hash: '#/overview' })
  await page.getByText('You have no database yet').waitFor()
  await page.getByText('You have no device yet').waitFor()
  await look(t, page, 'overview-account-empty')
  for (const name of ['notes', 'a-database-with-a-rather-long-name-for-everything-else'])
    t.equal((await stage.call('PUT', `/${name}`, undefined, 'anna:anna')).status, 201)
  t.equal((await stage.call('POST', '/_settee/tokens', { name: 'phone' }, 'anna:anna')).status, 201)
  await page.reload()
  await page.getByRole('link', { name: 'a-database-with' }).waitFor()
  await page.getByText('2 of 2').waitFor()
  await page.getByText('never used').waitFor()
  await settled(page)
  await look(t, page, 'overview-account')
})
