/** Documents: a long list, the editor, conflicts, revisions and attachments. */
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { goTo, look, openStage, type Stage, settled } from '../../console/stage.ts'

t.setTimeout(300_000)

const EXACT = '{"title":"Exact","big":9007199254740993,"huge":1e400,"one":1.0,"minus":-0}'
const PIXEL = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)

t.test('documents', async (t) => {
  const stage = await openStage(t)
  await fill(stage)
  const page = await stage.signedIn(t)

  await t.test('a list of 100,000 documents', async (t) => {
    await goTo(page, '#/databases/large/documents')
    await page.getByText('100,000 documents').waitFor()
    await page.getByRole('link', { name: 'n000000', exact: true }).waitFor()
    await look(t, page, 'documents-list')
    const list = page.getByRole('grid')
    await list.focus()
    await page.keyboard.press('End')
    await page.getByRole('link', { name: 'n099999', exact: true }).waitFor()
    await page.keyboard.press('ArrowUp')
    await page.keyboard.press('Space')
    await page.getByText('1 document selected').waitFor()
    await page.keyboard.press('Delete')
    await page
      .getByRole('dialog')
      .getByText('These documents are deleted')
      .or(page.getByText('This document is deleted'))
      .waitFor()
    await page.keyboard.press('Escape')
    await page.keyboard.press('Escape')
    await list.evaluate((element) => {
      element.scrollTop = element.scrollHeight / 2
    })
    await page.getByRole('link', { name: 'n050001', exact: true }).waitFor()
    await page.getByLabel('Show ids that begin with').fill('n0777')
    await page.getByText('100 ids begin with “n0777”').waitFor()
    await page.getByRole('link', { name: 'n077700', exact: true }).waitFor()
  })

  await t.test('several documents are deleted, and live changes are shown', async (t) => {
    await goTo(page, '#/databases/small/documents')
    await page.getByRole('button', { name: 'Live' }).click()
    await page.getByText('Waiting for changes').waitFor()
    await page.getByRole('checkbox', { name: 'Select delete-1' }).click()
    await page.getByRole('checkbox', { name: 'Select delete-2' }).click({ modifiers: ['Shift'] })
    await page.getByRole('button', { name: 'Delete', exact: true }).click()
    await look(t, page, 'documents-delete')
    await page.getByRole('button', { name: 'Delete 2 documents' }).click()
    await page.getByText('2 documents were deleted').waitFor()
    await page.getByText('2 changes since').waitFor()
    await look(t, page, 'documents-live')
    await page.getByRole('button', { name: 'Close the live changes' }).click()
    await page.getByLabel('Which documents').selectOption('conflicts')
    await page.getByText('1 document in conflict').waitFor()
    await look(t, page, 'documents-conflicts')
    await page.getByLabel('Which documents').selectOption('local')
    await page.getByText('No local documents').waitFor()
  })

  await t.test('a document is changed with the keyboard alone, and its numbers stay exact', async (t) => {
    await goTo(page, '#/databases/small/documents')
    await page.getByRole('grid').focus()
    await page.getByRole('link', { name: 'exact' }).waitFor()
    for (const key of ['Home', 'ArrowDown', 'ArrowUp']) await page.keyboard.press(key)
    while ((await page.locator('.virtual-row.is-active').innerText()).split('\n')[0] !== 'exact')
      await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Enter')
    const editor = page.getByRole('textbox', { name: 'The document as JSON' })
    await editor.getByText('9007199254740993').waitFor()
    await look(t, page, 'document')
    await editor.focus()
    await page.keyboard.press('Control+Home')
    await page.keyboard.press('ArrowDown')
    await page.keyboard.type('"first": 1,')
    await page.keyboard.press('Control+Home')
    await page.keyboard.type('x')
    await page.getByText('Line 1, column 1').waitFor()
    await look(t, page, 'document-fault')
    await page.keyboard.press('Backspace')
    await page.keyboard.press('Control+s')
    await page.getByText('Saved', { exact: true }).waitFor()
    const stored = await (await fetch(`${stage.server.url}/small/exact`, { headers: AUTHORIZED })).text()
    t.match(stored, '"first":1,"title":"Exact","big":9007199254740993,"huge":1e400,"one":1.0,"minus":-0')
  })

  await t.test('leaving with unsaved changes asks', async (t) => {
    await typeInto(page, 'x')
    await page.getByRole('link', { name: 'All documents' }).click()
    await page.getByRole('heading', { name: 'Leave without saving?' }).waitFor()
    await look(t, page, 'document-leave')
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Save' }).isDisabled()
    await page.getByRole('link', { name: 'All documents' }).click()
    await page.getByRole('button', { name: 'Discard the changes' }).click()
    await page.getByRole('grid').waitFor()
  })

  await t.test('a save on an old revision shows both sides', async (t) => {
    await goTo(page, '#/databases/small/documents/shared')
    await page.getByRole('textbox', { name: 'The document as JSON' }).getByText('"by"').waitFor()
    const before = (await stage.call('GET', '/small/shared')).json._rev as string
    await stage.call('PUT', '/small/shared', { _rev: before, by: 'another', kept: true })
    await typeInto(page, '{"by": "me"}', true)
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Somebody else has changed the document in the meantime').waitFor()
    await page.getByRole('textbox', { name: 'Your text' }).getByText('"me"').waitFor()
    await look(t, page, 'document-save-conflict')
    await page.getByRole('button', { name: 'Save my text' }).click()
    await page.getByText('Saved', { exact: true }).last().waitFor()
    t.equal((await stage.call('GET', '/small/shared')).json.by, 'me')
  })

  await t.test('a session that ends loses nothing of what was typed', async (t) => {
    await goTo(page, '#/databases/small/documents/shared')
    await typeInto(page, '{"by": "me", "again": true}', true)
    await page.context().clearCookies()
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: 'Sign in again' }).waitFor()
    await page.getByLabel('Password', { exact: true }).fill('secret')
    await page.keyboard.press('Enter')
    await page.locator('dialog').waitFor({ state: 'detached' })
    // A button that is busy is disabled as well, and leaving the page would then ask.
    await page.locator('button:disabled:not([aria-busy="true"])', { hasText: /^Save$/ }).waitFor()
    t.equal((await stage.call('GET', '/small/shared')).json.again, true)
  })

  await t.test('a conflict is settled', async (t) => {
    await goTo(page, '#/databases/small/documents/conflict')
    await page.getByText('This document has 1 conflicting version').waitFor()
    await settled(page)
    await look(t, page, 'document-revisions')
    await page.getByRole('link', { name: 'Compare and settle' }).click()
    await page
      .getByRole('textbox', { name: /Conflicting version/ })
      .getByText('phone')
      .first()
      .waitFor()
    await look(t, page, 'document-compare')
    await page.getByRole('button', { name: 'Keep the conflicting version' }).click()
    await page.getByRole('button', { name: 'Keep this version' }).click()
    await page.getByText('The conflict is settled').waitFor()
    const { json } = await stage.call('GET', '/small/conflict?conflicts=true')
    t.match(json, { from: 'phone' })
    t.notOk(json._conflicts)
  })

  await t.test('attachments', async (t) => {
    await goTo(page, '#/databases/small/documents/files')
    await settled(page)
    await page.locator('input[type=file]').setInputFiles([
      { name: 'pixel.png', mimeType: 'image/png', buffer: PIXEL },
      { name: 'page.html', mimeType: 'text/html', buffer: Buffer.from('<script>top.x = 1</script>') },
    ])
    await page.getByRole('button', { name: 'page.html', exact: true }).waitFor()
    await look(t, page, 'document-attachments')
    await page.getByRole('button', { name: 'page.html', exact: true }).click()
    await page.getByText('<script>top.x = 1</script>').waitFor()
    await look(t, page, 'document-preview')
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'pixel.png', exact: true }).click()
    await page
      .locator('img.preview')
      .evaluate((image) => (image as unknown as { decode(): Promise<void> }).decode())
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Remove page.html' }).click()
    await page.getByRole('button', { name: 'Remove the attachment' }).click()
    await page.getByText('page.html was removed').waitFor()
    t.same(Object.keys((await stage.call('GET', '/small/files')).json._attachments), ['pixel.png'])
  })

  await t.test('names of others are text, and lead nowhere else', (t) => ofHostileNames(t, stage, page))

  await t.test('a document is created', async (t) => {
    await goTo(page, '#/databases/small/documents?new=1&id=created')
    await page.getByLabel('Id', { exact: true }).waitFor()
    await look(t, page, 'document-new')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByText('created was created').waitFor()
    await page.getByRole('button', { name: 'Save' }).waitFor()
    t.equal((await stage.call('GET', '/small/created')).status, 200)
    await goTo(page, '#/databases/small/documents/nothing')
    await page.getByText('There is no such document').waitFor()
    await look(t, page, 'document-missing')
  })
})

const HTML = `<img src=x onerror="document.body.id='run'">`
/** Stored by replication, which accepts any name. */
const ELSEWHERE = '../../_node/_local/_config/admins/root'

async function ofHostileNames(t: Test, stage: Stage, page: Page): Promise<void> {
  const { call, server } = stage
  const content = { content_type: HTML, data: '' }
  const docs = [
    { _id: HTML, _rev: '1-a', _attachments: { [HTML]: content, [ELSEWHERE]: content } },
    { _id: '..', _rev: '1-a' },
    { _id: `_design/${HTML}`, _rev: '1-a', views: { [HTML]: { map: 'function () {}' } } },
  ]
  await call('POST', '/small/_bulk_docs', { new_edits: false, docs })
  const { token } = (await call('POST', '/_settee/tokens', { name: HTML })).json
  const authorization = `Basic ${Buffer.from(`root:${token}`).toString('base64')}`
  await fetch(`${server.url}/small`, { headers: { authorization, 'user-agent': HTML } })
  const id = encodeURIComponent(HTML)
  for (const hash of [
    '#/databases/small/documents',
    `#/databases/small/documents/${id}`,
    `#/databases/small/time-machine/${id}`,
    '#/databases/small/queries/indexes',
    `#/databases/small/queries/view?ddoc=${id}`,
    '#/devices',
    `#/devices?account=${id}`,
    `#/${id}`,
  ]) {
    await goTo(page, hash)
    t.equal(await page.locator('img[src=x], body#run').count(), 0, hash)
  }
  await goTo(page, `#/databases/small/documents/${id}`)
  await page.getByText(ELSEWHERE).waitFor()
  t.equal(await page.getByRole('button', { name: ELSEWHERE }).count(), 0)
  t.equal(await page.locator('a[href*="admins"]').count(), 0)
  await goTo(page, '#/databases/small/documents/..')
  await page.getByText('A browser cannot address this').waitFor()
}

const AUTHORIZED = { authorization: `Basic ${Buffer.from('root:secret').toString('base64')}` }

/** Types at the beginning of the editor, or instead of its text. */
async function typeInto(page: Page, text: string, isWhole = false): Promise<void> {
  await page.getByRole('textbox', { name: 'The document as JSON' }).focus()
  await page.keyboard.press(isWhole ? 'Control+a' : 'Control+Home')
  if (isWhole) await page.keyboard.press('Delete')
  await page.keyboard.type(text)
}

async function fill(stage: Stage): Promise<void> {
  await Promise.all(['large', 'small'].map((name) => stage.call('PUT', `/${name}`)))
  for (let first = 0; first < 100_000; first += 10_000) {
    const docs = Array.from({ length: 10_000 }, (_, n) => ({ _id: `n${String(first + n).padStart(6, '0')}` }))
    await stage.call('POST', '/large/_bulk_docs', { docs })
  }
  const branch = (rev: string, from: string) => ({
    _id: 'conflict',
    _rev: `2-${rev}`,
    _revisions: { start: 2, ids: [rev, 'a'.repeat(32)] },
    title: 'Shopping',
    from,
    items: ['milk', 'bread', from],
  })
  await stage.call('POST', '/small/_bulk_docs', {
    new_edits: false,
    docs: [branch('b'.repeat(32), 'phone'), branch('c'.repeat(32), 'laptop')],
  })
  const ids = ['delete-1', 'delete-2', 'files', 'shared', 'a very long id '.repeat(12).trim()]
  await stage.call('POST', '/small/_bulk_docs', { docs: ids.map((_id) => ({ _id, by: 'nobody' })) })
  await fetch(`${stage.server.url}/small/exact`, { method: 'PUT', headers: AUTHORIZED, body: EXACT })
}
