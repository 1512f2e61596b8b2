/** Queries and replication in the console. */
import { setTimeout as delay } from 'node:timers/promises'
import type { Page } from 'playwright-core'
import t from 'tap'
import { reachServer } from '../../../src/control/control-socket.ts'
import { goTo, look, openStage, type Stage, settled, signIn } from '../../console/stage.ts'
import { startTestServer } from '../../helpers/server.ts'

t.setTimeout(300_000)

const ROOT_ADMIN = { COUCHDB_USER: 'root', COUCHDB_PASSWORD: 'secret' }
const NOTES = '#/databases/notes/queries'

async function fill(call: Stage['call']): Promise<void> {
  await call('PUT', '/notes')
  const docs = Array.from({ length: 60 }, (_, n) => ({
    _id: `note:${String(n).padStart(3, '0')}`,
    type: n % 3 === 0 ? 'task' : 'note',
    title: `A note about ${n % 7 === 0 ? 'something with quite a long title that does not end soon' : 'gardens'}`,
    created: `2026-01-${String((n % 28) + 1).padStart(2, '0')}`,
    tags: ['work', `tag-${n % 5}`],
    author: { name: 'Anna', address: { town: 'Aachen' } },
  }))
  await call('POST', '/notes/_bulk_docs', { docs })
  await call('PUT', '/notes/_design/app', {
    views: {
      by_type: { map: 'function (doc) { emit([doc.type, doc.created], 1) }', reduce: '_count' },
      all: { map: 'function (doc) { emit(doc._id) }' },
    },
  })
  await call('PUT', '/notes/_design/old', { language: 'erlang', views: { v: { map: 'fun() -> ok.' } } })
}

/** Writes a query into the editor, as a user does. */
async function write(page: Page, query: object): Promise<void> {
  await page.locator('.cm-content').click()
  await page.keyboard.press('ControlOrMeta+A')
  // Chromium would keep the style of replaced text by an inline style, which the policy forbids.
  await page.keyboard.press('Backspace')
  // One piece, since the editor closes brackets that are typed.
  await page.keyboard.insertText(JSON.stringify(query))
}

t.test('queries, views, indexes, replication', async (t) => {
  const stage = await openStage(t)
  await fill(stage.call)
  const page = await stage.signedIn(t, { hash: NOTES })
  await page.locator('.cm-content').waitFor()

  await t.test('a query without an index offers one, and uses it', async (t) => {
    await write(page, { selector: { type: 'task' }, limit: 10 })
    await page.keyboard.press('ControlOrMeta+Enter')
    await page.getByText('No index fits this query').waitFor()
    await page.getByRole('button', { name: 'Create an index on type' }).waitFor()
    await look(t, page, 'query-without-index')
    await page.getByRole('button', { name: 'Create an index on type' }).click()
    await page.getByText('No index fits this query').waitFor({ state: 'detached' })
    t.equal((await stage.call('GET', '/notes/_index')).json.total_rows, 2)
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByText('on page 2').waitFor()
    t.equal(await page.locator('.result-table tbody tr').count(), 10)
    await page.getByRole('link', { name: 'note:057' }).waitFor()
    await page.getByRole('button', { name: 'Explain' }).click()
    await page.getByText('It uses the index').waitFor()
    await look(t, page, 'query-explained')
  })

  await t.test('a fault keeps the query, and so does a session that ends', async (t) => {
    await write(page, { selector: { type: { $wrong: 1 } } })
    await page.keyboard.press('ControlOrMeta+Enter')
    await page.getByText('Invalid operator: $wrong').waitFor()
    await write(page, { selector: { 'author.name': 'Nobody' } })
    await page.context().clearCookies()
    await page.keyboard.press('ControlOrMeta+Enter')
    await page.getByRole('heading', { name: 'Sign in again' }).waitFor()
    await page.getByLabel('Password', { exact: true }).fill('secret')
    await page.keyboard.press('Enter')
    await page.getByText('No document meets these conditions').waitFor()
    await look(t, page, 'query-nothing')
    await page.reload()
    await page.locator('.cm-content', { hasText: 'Nobody' }).waitFor()
    await page.getByLabel('Your recent queries').selectOption({ index: 3 })
    await page.locator('.cm-content', { hasText: 'task' }).waitFor()
  })

  await t.test('a view', async (t) => {
    await goTo(page, `${NOTES}/view?ddoc=_design/app&view=by_type`)
    await page.getByLabel('Group').selectOption('1')
    await page.getByRole('button', { name: 'Run' }).click()
    await page.getByRole('rowheader', { name: '["note"]' }).waitFor()
    await page.getByLabel('Rows').selectOption('between')
    await page.getByLabel('Smallest key').fill('["note"')
    await page.getByText('This is not JSON').waitFor()
    await page.getByLabel('Smallest key').fill('["note"]')
    await look(t, page, 'view')
    await page.getByLabel('Design document').selectOption('_design/old')
    await page.getByText('written in erlang').waitFor()
  })

  await t.test('the list of indexes, by the keyboard alone', async (t) => {
    await goTo(page, `${NOTES}/indexes`)
    await page.getByRole('link', { name: 'by_type' }).waitFor()
    await look(t, page, 'indexes')
    await page.getByRole('button', { name: 'Create an index' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await page.keyboard.press('Enter')
    await page.getByText('Name at least one field.').waitFor()
    await look(t, page, 'index-new')
    await page.keyboard.type('created, type')
    await page.keyboard.press('Tab')
    await page.keyboard.type('by-date')
    await page.keyboard.press('Enter')
    await page.getByRole('rowheader', { name: 'created, type' }).waitFor()
    await page.getByRole('button', { name: 'Delete the index by-date' }).focus()
    await page.keyboard.press('Enter')
    await page.getByText('Documents are not touched.').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('Enter')
    await page.getByRole('button', { name: 'Delete the index', exact: true }).click()
    await page.getByRole('rowheader', { name: 'created, type' }).waitFor({ state: 'detached' })
  })

  await t.test('a member may query, and not change indexes', async (t) => {
    await stage.call('PUT', '/_users/org.couchdb.user:bob', {
      name: 'bob',
      password: 'bob',
      roles: [],
      type: 'user',
    })
    await stage.call('PUT', '/notes/_security', { members: { names: ['bob'] }, admins: { names: [] } })
    const other = await stage.signedIn(t, { account: 'bob', hash: `${NOTES}/indexes` })
    await other.getByText('Only admins of this database').waitFor()
    t.equal(await other.getByRole('button', { name: 'Create an index' }).count(), 0)
  })

  await t.test('a new replication, checked before it is sent', async (t) => {
    await goTo(page, '#/replication')
    await page.getByText('Nothing is replicated').waitFor()
    await page.getByRole('button', { name: 'New replication' }).click()
    await page.getByRole('button', { name: 'Start' }).click()
    await page.getByText('Enter the address of the database.').waitFor()
    await look(t, page, 'replication-new')
    await page.getByRole('group', { name: 'Source' }).getByLabel('Where').selectOption('here')
    await page.getByRole('group', { name: 'Source' }).getByLabel('Database').fill('notes')
    await page.getByRole('group', { name: 'Target' }).getByLabel('Database').fill('copy')
    await page.getByLabel('When').selectOption('always')
    await page.getByLabel('Name of the document').fill('copy-of-notes')
    await page.getByRole('button', { name: 'Start' }).click()
    const { doc_count: all } = (await stage.call('GET', '/notes')).json
    // One more is the tombstone of an index.
    await page.getByText(`${all + 1} documents`).waitFor()
    t.equal((await stage.call('GET', '/copy')).json.doc_count, all)
  })

  await t.test('failures in words', async (t) => {
    await stage.call('PUT', '/_replicator/away', {
      source: {
        url: 'http://127.0.0.1:1/notes',
        auth: { basic: { username: 'a', password: 'hidden-word' } },
      },
      target: 'copy',
      continuous: true,
      retries_per_request: 0,
    })
    await page.getByText('no server listens at this port').waitFor()
    t.notMatch(await page.content(), 'hidden-word')
    await look(t, page, 'replications')
    await page.getByRole('button', { name: 'From http://127.0.0.1:1/notes' }).click()
    await page.getByRole('heading', { name: 'History' }).waitFor()
    await look(t, page, 'replication-details')
    await page.keyboard.press('Escape')
    const row = page.getByRole('row', { name: 'http://127.0.0.1:1/notes' })
    await row.getByRole('button', { name: 'Stop' }).click()
    await page.getByText('Its document away').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click()
    await row.waitFor({ state: 'detached' })
    t.equal((await stage.call('GET', '/_replicator/away')).status, 404)
  })

  await t.test('moving in', async (t) => {
    const old = await startTestServer(t, { env: ROOT_ADMIN })
    await fill(async (method, path, body) => old.request(method, path, { auth: 'root:secret', body }))
    await goTo(page, '#/replication/move')
    await page.getByRole('button', { name: 'Show what would be moved' }).click()
    await page.getByText('Enter the address of the old server.').waitFor()
    await look(t, page, 'move-form')
    await page.getByLabel('Address of the old server').fill(old.url)
    await page.getByLabel('Name of an admin there').fill('root')
    await page.getByLabel('Password', { exact: true }).fill('secret')
    await page.keyboard.press('Enter')
    // `notes` exists here.
    await page.getByText('exists here, and has not come from').waitFor()
    await page.getByRole('button', { name: 'Another server' }).click()
    await page.getByText('More options').click()
    await page.getByLabel('Add to databases that exist here').check()
    await page.getByRole('button', { name: 'Show what would be moved' }).click()
    await page.getByRole('heading', { name: 'What would be moved from' }).waitFor()
    await page.getByRole('rowheader', { name: 'notes' }).waitFor()
    await look(t, page, 'move-plan')
    await page.getByRole('button', { name: 'Begin the move' }).click()
    await page.getByText('Everything is here').waitFor()
    await settled(page)
    await look(t, page, 'move-done')
  })

  await t.test('the standby', async (t) => {
    await goTo(page, '#/replication/standby')
    await page.getByText('No standby follows this server').waitFor()
    await look(t, page, 'standby-none')
    const other = await startTestServer(t)
    const controls = await reachServer(other.dataDir)
    await controls?.follow({ url: stage.server.url.replace('://', '://root:secret@'), again: false })
    // It begins without an admin, so whoever asks may do everything until it has copied those of the primary.
    const isOpen = async () => (await other.request('GET', '/_all_dbs')).status === 200
    const asRoot = () => other.request('GET', '/_all_dbs', { auth: 'root:secret' })
    while ((await isOpen()) || (await asRoot()).status !== 200) await delay(50)
    const context = await stage.browser.newContext({ locale: 'en-GB' })
    t.teardown(() => context.close())
    const there = await context.newPage()
    await there.goto(`${other.url}/_utils/#/replication/standby`)
    // The accounts are those of the primary.
    await signIn(there, 'root', 'secret')
    await there.getByText('Following').waitFor()
    await look(t, there, 'standby-follows')
    await page.getByText('This server has a standby').waitFor()
  })

  await t.test('a server that stops leaves the list as it is', async (t) => {
    await goTo(page, '#/replication')
    await page.getByText('copy-of-notes').waitFor()
    await stage.server.kill()
    await page.getByText('The server did not answer').waitFor()
    t.ok(await page.getByText('copy-of-notes').isVisible())
  })
})
