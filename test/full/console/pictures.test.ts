/**
 * The pictures of docs/console.md and the README: `CONSOLE_PICTURES=1` makes them anew in docs/images. The pages are small
 * enough for a repository: 150 kB in all.
 */
import { mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t from 'tap'
import { ROOT } from '../../cli/child.ts'
import { writePast } from '../../console/past.ts'
import { goTo, openStage, type Stage, settled } from '../../console/stage.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const FOLDER = join(ROOT, 'docs/images')
const MAX_BYTES = 150_000
const DESKTOP = { width: 1180, height: 760 }
/** The overview, with some of its plots. */
const TALL = { width: 1180, height: 900 }
const PHONE = { width: 360, height: 720 }

const PHONE_CLIENT =
  'Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Obsidian/1.8.9 Chrome/132.0.0.0 Mobile Safari/537.36'
const DESK_CLIENT = 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0'

t.setTimeout(300_000)

t.test('the pictures are small', async (t) => {
  const files = (await readdir(FOLDER)).filter((name) => name.startsWith('console'))
  t.ok(files.length > 0)
  const sizes = await Promise.all(files.map(async (name) => (await stat(join(FOLDER, name))).size))
  const sum = sizes.reduce((a, b) => a + b, 0)
  t.ok(sum < MAX_BYTES, `${sum} bytes`)
})

t.test('pictures', { skip: process.env.CONSOLE_PICTURES === undefined }, async (t) => {
  await mkdir(FOLDER, { recursive: true })
  const stage = await openStage(t, { prepare: writePast, logLevel: 'warning' })
  await fill(stage)
  const folder = await temporaryFolder(t)
  for (const [key, value] of [
    ['chttpd_auth/iterations', '600000'],
    ['settee/backup_folder', folder],
    ['settee/backup_interval', '24'],
  ] as const) {
    await stage.call('PUT', `/_node/_local/_config/${key}`, value)
  }
  await backUp(stage)
  const page = await stage.signedIn(t, { viewport: DESKTOP })
  await goTo(page, '#/overview')
  await page.locator('.plot canvas').nth(5).waitFor()
  await page.setViewportSize(TALL)
  await keep(page, 'console')
  await page.setViewportSize(DESKTOP)
  await goTo(page, '#/databases/notes/time-machine/note%3Abread')
  await page.getByRole('button', { name: 'Show changes' }).first().click()
  await settled(page)
  await keep(page, 'console-time-machine')
  await goTo(page, '#/databases/notes/documents/note%3Aweekend')
  await page.locator('.cm-content, .json-editor').first().waitFor()
  await keep(page, 'console-document')
  await goTo(page, '#/devices')
  await page.getByText('phone').first().waitFor()
  await keep(page, 'console-devices')
  await page.setViewportSize(PHONE)
  await page.emulateMedia({ colorScheme: 'dark' })
  await goTo(page, '#/databases')
  await page.getByRole('link', { name: 'notes' }).waitFor()
  await keep(page, 'console-phone')
})

async function fill({ call, server }: Stage): Promise<void> {
  const vault = async (name: string, account: string) =>
    call('POST', '/_settee/vaults', { vault: name, for: 'pouchdb', account, device: 'laptop' })
  await vault('notes', 'anna')
  await vault('journal', 'anna')
  await vault('recipes', 'ben')
  const titles = ['bread', 'weekend', 'garden', 'books', 'letters', 'tent', 'insurance', 'films']
  for (const [at, title] of titles.entries()) {
    const doc = {
      _id: `note:${title}`,
      title: title[0]?.toUpperCase() + title.slice(1),
      tags: ['home'],
      body: `Line ${at}`,
    }
    await call('PUT', `/notes/${encodeURIComponent(doc._id)}`, doc)
  }
  const docs = Array.from({ length: 412 }, (_, n) => ({
    _id: `note:2025-${String(n).padStart(4, '0')}`,
    body: `Day ${n}`,
  }))
  await call('POST', '/notes/_bulk_docs', { docs })
  await call('POST', '/journal/_bulk_docs', { docs: docs.slice(0, 88) })
  await call('POST', '/recipes/_bulk_docs', { docs: docs.slice(0, 37) })
  const texts = [
    { flour: 500, water: 350, salt: 10, steps: ['mix', 'fold four times', 'bake 45 minutes'] },
    {
      flour: 500,
      water: 375,
      salt: 10,
      steps: ['mix', 'fold four times', 'leave it overnight', 'bake 45 minutes'],
    },
  ]
  for (const text of texts) {
    const { json } = await call('GET', '/notes/note%3Abread')
    await call('PUT', '/notes/note%3Abread', { ...json, ...text })
  }
  const branches = ['a', 'b'].map((id) => ({
    _id: 'note:weekend',
    _rev: `2-${id.repeat(32)}`,
    _revisions: { start: 2, ids: [id.repeat(32), '0'.repeat(32)] },
    title: 'Weekend',
    body: id === 'a' ? 'Train at 16:40, bring the tent' : 'Train at 16:40, bring a map',
  }))
  await call('POST', '/notes/_bulk_docs', { docs: branches, new_edits: false })
  for (const [name, client] of [
    ['phone', PHONE_CLIENT],
    ['tablet', DESK_CLIENT],
  ] as const) {
    const { json } = await call('POST', '/_settee/tokens?account=anna', { name })
    const authorization = `Basic ${Buffer.from(`anna:${json.token}`).toString('base64')}`
    for (const path of ['/notes/_changes', '/journal/_changes']) {
      const answer = await fetch(server.url + path, { headers: { authorization, 'user-agent': client } })
      await answer.arrayBuffer()
    }
  }
  await call('PUT', '/notes/note%3Anew', { title: 'New' })
}

async function backUp({ call }: Stage): Promise<void> {
  await call('POST', '/_settee/backups', {})
  for (;;) {
    const { json } = await call('GET', '/_settee/backups')
    if (json.running === null && json.backups.length > 0) return
  }
}

/** Runs in a page: from a PNG to a WebP, both in base64. */
const ENCODE = `async (data) => {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0))
  const bitmap = await createImageBitmap(new Blob([bytes], { type: 'image/png' }))
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height)
  canvas.getContext('2d').drawImage(bitmap, 0, 0)
  const blob = await canvas.convertToBlob({ type: 'image/webp', quality: 0.72 })
  const encoded = new Uint8Array(await blob.arrayBuffer())
  return btoa(Array.from(encoded, (byte) => String.fromCharCode(byte)).join(''))
}`

/** Keeps a picture as WebP, which the browser itself encodes. */
async function keep(page: Page, name: string): Promise<void> {
  await settled(page)
  const png = (await page.screenshot()).toString('base64')
  const blank = await page.context().newPage()
  const webp = (await blank.evaluate(`(${ENCODE})(${JSON.stringify(png)})`)) as string
  await blank.close()
  await writeFile(join(FOLDER, `${name}.webp`), Buffer.from(webp, 'base64'))
}
