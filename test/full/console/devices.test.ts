/** The console's screens for devices and accounts, in both modes. */
import t, { type Test } from 'tap'
import { goTo, look, openStage, type Stage, settled } from '../../console/stage.ts'
import { device, remote } from '../../protocol/devices.ts'

t.setTimeout(300_000)

/** A request of a device that has a token. */
async function ask(stage: Stage, path: string, auth: string, client: string): Promise<void> {
  const authorization = `Basic ${Buffer.from(auth).toString('base64')}`
  const answer = await fetch(stage.server.url + path, {
    headers: { authorization, 'user-agent': client },
  })
  await answer.arrayBuffer()
}

const OBSIDIAN =
  'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) obsidian/1.8.9 Chrome/132.0.6834.210 Electron/34.3.0 Safari/537.36'
const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0'
const LONG = 'the-notes-of-everybody-in-the-family-and-of-our-guests'

/** The account `anna` with three devices, which differ in what they lack. */
async function withDevices(t: Test): Promise<Stage> {
  const stage = await openStage(t, { ini: '[settee]\ntokens_per_account = 200\n' })
  const { call } = stage
  await call('PUT', '/_users/org.couchdb.user:anna', {
    name: 'anna',
    type: 'user',
    roles: ['family'],
    password: 'anna',
  })
  await call('PUT', '/_users/org.couchdb.user:bob', { name: 'bob', type: 'user', roles: [], password: 'bob' })
  for (const vault of ['notes', LONG])
    await call('POST', '/_settee/vaults', { vault, for: 'inkdrop', account: 'anna' })
  const token = async (name: string) =>
    (await call('POST', '/_settee/tokens?account=anna', { name })).json.token as string
  const desk = await token('desk')
  await ask(stage, '/notes/_changes', `anna:${desk}`, FIREFOX)
  const docs = Array.from({ length: 1234 }, (_, at) => ({ _id: `note-${at}` }))
  await call('POST', '/notes/_bulk_docs', { docs })
  const phone = await token('Anna’s old phone, the one with the broken screen')
  for (const db of ['notes', LONG]) await ask(stage, `/${db}/_changes`, `anna:${phone}`, OBSIDIAN)
  return stage
}

t.test('devices of a server', async (t) => {
  const stage = await withDevices(t)
  const { call } = stage
  const page = await stage.signedIn(t, { hash: '#/devices' })
  const row = (name: string) => page.getByRole('row').filter({ hasText: name })

  await t.test('the list says what each device is and lacks', async (t) => {
    await row('broken screen').getByText('Obsidian 1.8.9 on Windows').waitFor()
    await row('desk').getByText('1,234 changes').waitFor()
    t.equal(await row('broken screen').getByText('Up to date').count(), 2)
    await row('inkdrop').getByText('Never').waitFor()
    await look(t, page, 'devices')
    await goTo(page, '#/devices?account=bob')
    await page.getByText('No devices yet').waitFor()
    await look(t, page, 'devices-none')
  })

  await t.test('a device is added by the keyboard alone, and syncs', async (t) => {
    await goTo(page, '#/devices')
    await page.getByRole('link', { name: 'Add a device' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Add a device', level: 1 }).waitFor()
    await page.getByRole('radio', { name: /Obsidian/ }).focus()
    for (const key of ['ArrowDown', 'ArrowDown', 'Tab']) await page.keyboard.press(key)
    await page.keyboard.press('Enter')
    await page.getByText('A name begins with a lowercase letter').waitFor()
    t.equal(
      await page.evaluate('document.activeElement.getAttribute("list") !== null'),
      true,
      'the first fault',
    )
    await page.keyboard.type('tasks')
    await page.keyboard.press('Tab')
    await page.keyboard.type('build machine')
    await look(t, page, 'device-add')
    await page.getByLabel('Name of the device').focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'build machine can sync' }).waitFor()
    await page.getByRole('img', { name: 'QR code for build machine' }).waitFor()
    const address = await page.getByLabel('Address with the token', { exact: true }).inputValue()
    t.match(address, /^http:\/\/tasks:stt_[\w-]+@127\.0\.0\.1:\d+\/tasks$/)
    const db = await device(t)
    await db.put({ _id: 'task' })
    t.match(await db.sync(remote(address).db), { push: { docs_written: 1, ok: true } })
    await page.getByText('Database tasks: created').waitFor()
  })

  await t.test('Obsidian gets a Setup URI and its passphrases', async (t) => {
    await goTo(page, '#/devices/add?database=vault')
    await page.getByLabel('Name of the device').fill('phone')
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByRole('heading', { name: 'phone can sync' }).waitFor()
    t.match(await page.getByLabel('Setup URI', { exact: true }).inputValue(), /^obsidian:\/\/setuplivesync/)
    t.match(
      await page.getByLabel('Passphrase of the vault', { exact: true }).inputValue(),
      /^(?:\w{5}-){4}\w{5}$/,
    )
    await page.getByRole('img', { name: 'QR code for phone' }).waitFor()
    await look(t, page, 'device-setup')
    await goTo(page, '#/devices')
    await goTo(page, '#/devices/add?database=vault')
    await page.getByLabel('Name of the device').fill('desk')
    await page.getByText('This database exists').waitFor()
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByText('The vault may hold encrypted notes already').waitFor()
    await page.locator('input[type="password"]:focus').waitFor()
    await look(t, page, 'device-refused')
    await page.getByLabel('Passphrase of the vault', { exact: true }).fill('ours')
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByRole('heading', { name: 'desk can sync' }).waitFor()
    t.equal(
      await page.getByLabel('Passphrase of the vault').count(),
      0,
      'the passphrase, which the user has given, is not shown',
    )
  })

  await t.test('a device with a token gets a new one only on request', async () => {
    await goTo(page, '#/devices/add?database=notes&account=anna')
    await page.getByRole('radio', { name: /Inkdrop/ }).check()
    await page.getByLabel('Name of the device').fill('inkdrop')
    await page.route('**/_settee/vaults', (route) => route.abort(), { times: 1 })
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByText('The server did not answer').waitFor()
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByText('already has a device “inkdrop”').waitFor()
    await page.getByRole('button', { name: 'Give it a new token' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Give it a new token' }).click()
    await page.getByText('Token of inkdrop: replaced').waitFor()
  })

  await t.test('a revoked device has no access', async (t) => {
    await goTo(page, '#/devices?account=anna')
    await row('desk').getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('dialog').waitFor()
    await look(t, page, 'device-revoke')
    await page.keyboard.press('Escape')
    t.equal(await row('desk').count(), 1)
    await row('desk').getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
    await page.getByText('desk was revoked').waitFor()
    await row('desk').waitFor({ state: 'detached' })
    const { json } = await call('GET', '/_settee/tokens?account=anna')
    t.notOk(json.tokens.some(({ name }: { name: string }) => name === 'desk'))
  })

  await t.test('accounts', async (t) => {
    await goTo(page, '#/devices/accounts')
    await row('anna').getByText('or its role family').waitFor()
    await row('tasks').getByText('only its devices have access').waitFor()
    t.equal(
      await row('root').getByRole('button', { name: 'Delete' }).count(),
      0,
      'the last admin cannot be deleted',
    )
    await look(t, page, 'accounts')
    await page.getByRole('button', { name: 'Add an account' }).click()
    await page.locator('dialog input:focus').waitFor()
    await page.keyboard.type('bob')
    await page.keyboard.press('Enter')
    await page.getByText('needs at least 8 characters').waitFor()
    await page.getByLabel('Password', { exact: true }).fill('long enough')
    await page.keyboard.press('Enter')
    await page.getByText('There is already an account with this name').waitFor()
    await page.getByLabel('Name', { exact: true }).fill('cora')
    await page.keyboard.press('Enter')
    await page.getByText('The account cora was added').waitFor()
    t.equal((await call('GET', '/_session', undefined, 'cora:long enough')).status, 200)
    await row('cora').getByRole('button', { name: 'Change password' }).click()
    await page.getByLabel('New password', { exact: true }).fill('another one')
    await page.keyboard.press('Enter')
    await page.getByText('The password of cora was changed').waitFor()
    t.equal((await call('GET', '/_session', undefined, 'cora:another one')).status, 200)
    await row('cora').getByRole('button', { name: 'Delete' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Delete the account' }).click()
    await row('cora').waitFor({ state: 'detached' })
    t.equal((await call('GET', '/_users/org.couchdb.user:cora')).status, 404)
  })

  await t.test('an account sees and adds its own devices', async (t) => {
    const page = await stage.signedIn(t, { account: 'anna', hash: '#/devices' })
    await page.getByRole('row').filter({ hasText: 'broken screen' }).waitFor()
    await settled(page)
    t.equal(await page.getByRole('link', { name: 'Accounts' }).count(), 0)
    await look(t, page, 'devices-of-account')
    await goTo(page, '#/devices/add')
    await page.getByRole('radio', { name: /Your own app/ }).check()
    await page.getByLabel('Database', { exact: true }).fill('tasks')
    await page.getByLabel('Name of the device').fill('tablet')
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByText('Your account has no access to the database tasks').waitFor()
    await page.getByLabel('Database', { exact: true }).fill('notes')
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByRole('heading', { name: 'tablet can sync' }).waitFor()
  })

  await t.test('long lists come in pages', async (t) => {
    const names = Array.from({ length: 101 }, (_, at) => `x${at}`)
    const docs = names.map((name) => ({ _id: `org.couchdb.user:${name}`, name, type: 'user', roles: [] }))
    await call('POST', '/_users/_bulk_docs', { docs })
    await Promise.all(names.map((name) => call('POST', '/_settee/tokens?account=bob', { name })))
    const rows = page.getByRole('row')
    const more = page.getByRole('button', { name: 'Show more' })
    await goTo(page, '#/devices')
    await more.click()
    await more.waitFor({ state: 'detached' })
    const { tokens } = (await call('GET', '/_settee/tokens?all=true&limit=1000')).json
    t.equal(await rows.count(), 1 + tokens.length)
    await goTo(page, '#/devices/accounts')
    await more.click()
    await rows.nth(100).waitFor()
    await more.click()
    await more.waitFor({ state: 'detached' })
    t.equal(await rows.count(), 1 + 1 + 4 + 101, 'the titles, the admin, and all accounts')
  })

  await t.test('the session of an admin goes on with a new password', async (t) => {
    await goTo(page, '#/devices/accounts')
    await row('root').getByRole('button', { name: 'Change password' }).click()
    await page.getByLabel('New password', { exact: true }).fill('another secret')
    await page.keyboard.press('Enter')
    await page.getByText('The password of root was changed').waitFor()
    await goTo(page, '#/devices')
    await row('inkdrop').first().waitFor()
    t.equal(await page.getByRole('dialog').count(), 0, 'nobody is asked to sign in')
  })
})

t.test('accounts in hosted mode', async (t) => {
  const stage = await openStage(t, { ini: '[settee]\nmode = hosted\n[quota]\nbytes = 200000\n' })
  const { call } = stage
  for (const name of ['anna', 'bob', 'berta', 'an-account-with-a-very-long-name-that-wraps@example.com'])
    t.equal((await call('POST', '/_settee/accounts', { name, password: name })).status, 201)
  await call('PUT', '/notes', undefined, 'anna:anna')
  await call('PUT', '/tasks', undefined, 'anna:anna')
  const docs = Array.from({ length: 200 }, (_, at) => ({ _id: `note-${at}`, text: 'x'.repeat(500) }))
  await call('POST', '/notes/_bulk_docs', { docs }, 'anna:anna')
  await call('PUT', '/_settee/accounts/berta', { suspended: true })
  const page = await stage.signedIn(t, { hash: '#/hosted' })
  const row = (name: string) => page.getByRole('row').filter({ hasText: name })

  await t.test('the list shows what each uses, and finds names', async (t) => {
    await row('berta').getByText('Suspended').waitFor()
    await look(t, page, 'hosted')
    await page.getByLabel('Find names').fill('b')
    await row('anna').waitFor({ state: 'detached' })
    await row('bob').waitFor()
    t.equal(await page.getByRole('row').count(), 3, 'with the titles')
    await page.getByLabel('Find names').fill('zz')
    await page.getByText('No account begins with “zz”').waitFor()
    await page.getByRole('button', { name: 'Add an account' }).click()
    await page.getByLabel('Name', { exact: true }).fill('bob')
    await page.getByLabel('Password', { exact: true }).fill('long enough')
    await page.keyboard.press('Enter')
    await page.getByText('There is already an account with this name.').waitFor()
    await page.getByLabel('Name', { exact: true }).fill('dora')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'dora', level: 1 }).waitFor()
    t.equal((await call('GET', '/_settee/account', undefined, 'dora:long enough')).status, 200)
  })

  await t.test('limits, suspension and resumption', async (t) => {
    await goTo(page, '#/hosted/anna')
    await page.getByRole('link', { name: 'notes' }).waitFor()
    await look(t, page, 'hosted-account')
    await page.getByRole('button', { name: 'Change limits' }).click()
    await page.getByRole('combobox', { name: 'Storage' }).selectOption('own')
    await page.getByLabel('Limit in MB').fill('much')
    await page.keyboard.press('Enter')
    await page.getByText('Enter a number, 0 or more.').waitFor()
    await look(t, page, 'hosted-limits')
    await page.getByLabel('Limit in MB').fill('1.5')
    await page.keyboard.press('Enter')
    await page.getByText('The limits of anna were changed').waitFor()
    t.match((await call('GET', '/_settee/accounts/anna')).json.overrides, { bytes: 1_500_000 })
    await page.getByRole('button', { name: 'Suspend' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click()
    await page.getByText('anna is suspended').waitFor()
    t.equal((await call('GET', '/notes', undefined, 'anna:anna')).status, 403)
    await page.getByRole('button', { name: 'Resume' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click()
    await page.getByText('anna was resumed').waitFor()
    await page.getByRole('button', { name: 'Change password' }).click()
    await page.getByLabel('New password', { exact: true }).fill('anna is new')
    await page.keyboard.press('Enter')
    await page.getByText('The password of anna was changed').waitFor()
    t.equal((await call('GET', '/notes', undefined, 'anna:anna is new')).status, 200)
  })

  await t.test('a database changes its owner', async (t) => {
    await row('tasks').getByRole('button', { name: 'Take away' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Take away' }).click()
    await row('tasks').waitFor({ state: 'detached' })
    await goTo(page, '#/hosted/bob')
    await page.getByRole('heading', { name: 'bob', level: 1 }).waitFor()
    await page.getByRole('button', { name: 'Give a database' }).click()
    await page.locator('dialog input:focus').waitFor()
    await page.keyboard.type('notes')
    await page.keyboard.press('Enter')
    await page.getByText('notes belongs to anna').waitFor()
    await page.getByRole('dialog').getByLabel('Database').fill('tasks')
    await page.keyboard.press('Enter')
    await row('tasks').waitFor()
    t.equal((await call('GET', '/_settee/owners/tasks')).json.owner, 'bob')
  })

  await t.test('a deletion says what goes, and asks for the name', async (t) => {
    await goTo(page, '#/hosted/anna')
    await page.getByRole('heading', { name: 'anna', level: 1 }).waitFor()
    await page.getByRole('button', { name: 'Delete' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('1 database is deleted with everything in it: notes.').waitFor()
    await look(t, page, 'hosted-delete')
    t.ok(await dialog.getByRole('button', { name: 'Delete the account' }).isDisabled())
    await dialog.getByLabel('Type “anna”').fill('anna')
    await page.keyboard.press('Enter')
    await page.getByText('anna was deleted').waitFor()
    await page.getByRole('heading', { name: 'Accounts', level: 1 }).waitFor()
    t.equal((await call('GET', '/_settee/accounts/anna')).status, 404)
  })

  await t.test('an account makes its own vault', async (t) => {
    const page = await stage.signedIn(t, { account: 'bob', hash: '#/devices/add' })
    await page.getByRole('radio', { name: /Inkdrop/ }).check()
    await page.getByLabel('Database', { exact: true }).fill('bobs-notes')
    await page.getByLabel('Name of the device').fill('phone')
    await page.getByRole('button', { name: 'Add the device' }).click()
    await page.getByText('Database bobs-notes: created').waitFor()
    t.equal((await call('GET', '/_settee/owners/bobs-notes')).json.owner, 'bob')
  })
})
