/** The way into the console: its files, the first admin, signing in and out, and sessions that end. */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { ROOT } from '../../cli/child.ts'
import { look, openStage, settled, signIn } from '../../console/stage.ts'

t.setTimeout(300_000)

t.test('a server without an admin gets one first', async (t) => {
  const stage = await openStage(t, { isOpen: true })
  const page = await stage.open(t)
  await page.getByRole('heading', { name: 'Create the server admin' }).waitFor()
  await look(t, page, 'first-admin')
  await page.getByLabel('Password', { exact: true }).fill('short')
  await page.keyboard.press('Enter')
  await page.getByText('needs at least 8 characters').waitFor()
  await page.getByLabel('Password', { exact: true }).fill('long enough')
  await page.getByLabel('Password again').fill('long enough')
  await page.keyboard.press('Enter')
  await page.locator('.frame').waitFor()
  t.equal((await stage.call('GET', '/_all_dbs', undefined, 'admin:long enough')).status, 200)
  t.equal((await stage.call('GET', '/_all_dbs', undefined, 'admin:other')).status, 401, 'it is closed now')
})

t.test('the way in', async (t) => {
  const stage = await openStage(t)
  await t.test('files', async (t) => {
    const redirect = await fetch(`${stage.server.url}/_utils`, { redirect: 'manual' })
    t.same([redirect.status, redirect.headers.get('location')], [301, '_utils/'])
    const index = await fetch(`${stage.server.url}/_utils/`, { headers: { 'accept-encoding': 'br' } })
    t.match(index.headers.get('content-security-policy') ?? '', /default-src 'none'/)
    t.equal(index.headers.get('cache-control'), 'no-cache')
    const [, script = ''] = /"\.\/(assets\/[^"]+\.js)"/.exec(await index.text()) ?? []
    for (const coding of ['br', 'gzip']) {
      const answer = await fetch(`${stage.server.url}/_utils/${script}`, {
        headers: { 'accept-encoding': coding },
      })
      t.equal(answer.headers.get('content-encoding'), coding)
      t.match(answer.headers.get('cache-control') ?? '', /max-age=31536000, immutable/)
      t.match(answer.headers.get('content-type') ?? '', /javascript/)
      await answer.arrayBuffer()
    }
    for (const [headers, status] of [
      [{ range: 'bytes=0-3' }, 206],
      [{ range: 'bytes=9999999-' }, 416],
      [{ 'if-match': '"another"' }, 412],
    ] as const) {
      const answer = await fetch(`${stage.server.url}/_utils/${script}`, { headers: { ...headers } })
      t.equal(answer.status, status, JSON.stringify(headers))
      await answer.arrayBuffer()
    }
    for (const path of [
      'nothing.js',
      'assets/..%2f..%2fserver.js',
      '..%2fserver.js',
      `${script}.gz`,
      'assets',
    ])
      t.equal((await fetch(`${stage.server.url}/_utils/${path}`)).status, 404, path)
  })

  await t.test('signing in, by the keyboard alone, and out', async (t) => {
    const page = await stage.open(t)
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    await look(t, page, 'sign-in')
    await page.getByLabel('Name', { exact: true }).focus()
    await page.keyboard.type('root')
    await page.keyboard.press('Tab')
    await page.keyboard.type('wrong')
    await page.keyboard.press('Enter')
    await page.getByText('The name or the password is wrong.').waitFor()
    await page.getByLabel('Password', { exact: true }).fill('secret')
    await page.keyboard.press('Enter')
    await page.locator('.frame').waitFor()
    await settled(page)
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    t.equal(
      await page.evaluate('document.activeElement.id'),
      'content',
      'the first Tab stop skips the navigation',
    )
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
  })

  await t.test('a session that ends is renewed over the page', async (t) => {
    const page = await stage.signedIn(t, { hash: '#/devices' })
    // A call that is still to come would ask for the password before the click.
    await settled(page)
    await page.context().clearCookies()
    await page.getByRole('link', { name: 'Databases' }).click()
    await page.getByRole('heading', { name: 'Sign in again' }).waitFor()
    await look(t, page, 'sign-in-again')
    await page.getByLabel('Password', { exact: true }).fill('wrong')
    await page.keyboard.press('Enter')
    await page.getByText('The name or the password is wrong.').waitFor()
    await page.getByLabel('Password', { exact: true }).fill('secret')
    await page.keyboard.press('Enter')
    await page.locator('dialog').waitFor({ state: 'detached' })
    await page.getByRole('heading', { name: 'Databases', level: 1 }).waitFor()
  })

  await t.test('the menu of a phone', async (t) => {
    const page = await stage.signedIn(t, { viewport: { width: 360, height: 740 } })
    await page.getByRole('button', { name: 'Menu' }).click()
    await page.getByRole('link', { name: 'Databases' }).click()
    await page.getByRole('heading', { name: 'Databases', level: 1 }).waitFor()
    await page.locator('.sidebar').waitFor({ state: 'hidden' })
    await page.getByRole('button', { name: 'Menu' }).click()
    await page.locator('.shade').waitFor()
    await look(t, page, 'menu')
    await page.keyboard.press('Escape')
  })
})

t.test('the first load is small', async (t) => {
  const folder = join(ROOT, 'dist/console')
  const stage = await openStage(t)
  const page = await stage.open(t)
  const loaded: string[] = []
  page.on('request', (request) => loaded.push(new URL(request.url()).pathname))
  await page.reload()
  await signIn(page, 'root', 'secret')
  await page.locator('.frame').waitFor()
  await settled(page)
  const names = loaded.flatMap((path) => /\/_utils\/(assets\/.*)$/.exec(path)?.[1] ?? [])
  const sizes = await Promise.all(
    [...new Set(names)].map(
      async (name) => (await stat(join(folder, `${name}.gz`)).catch(() => stat(join(folder, name)))).size,
    ),
  )
  const sum = sizes.reduce((a, b) => a + b, 0)
  t.comment(`${sum} bytes of gzip in ${sizes.length} files`)
  t.ok(sum > 0 && sum < 100_000, `${sum} bytes of gzip`)
  t.ok((await readdir(folder)).includes('licenses.md'))
})
