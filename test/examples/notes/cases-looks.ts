/** How it looks, and whether everybody can use it: each screen, light and dark, wide and narrow. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { crc32, deflateSync } from 'node:zlib'
import type { Test } from 'tap'
import { freePort, ROOT } from '../../cli/child.ts'
import { overflowOf, violationsIn } from '../../helpers/browser.ts'
import { until } from '../../helpers/until.ts'
import type { DeviceOptions } from './device.ts'
import type { Stage } from './stage.ts'

const FOLDER = join(ROOT, 'examples/notes/screenshots')

interface Look extends DeviceOptions {
  readonly name: string
}

const LOOKS: readonly Look[] = [
  { name: 'light', size: 'desktop' },
  { name: 'dark', size: 'desktop', dark: true },
  { name: 'phone', size: 'phone' },
]

/** Of the same parts: looked at by people. */
const MORE_LOOKS: readonly Look[] = [
  { name: 'tablet', size: 'tablet' },
  { name: 'phone-dark', size: 'phone', dark: true },
]

const RECIPE = `Two days, most of it waiting.

## Day one

- [x] 500 g flour, **strong**
- [x] 375 g water, lukewarm
- [ ] 10 g salt

> Fold it every half hour, four times. _Then leave it alone._

## Day two

1. Oven as hot as it goes, with the pot inside
2. 25 minutes covered, 20 open

| flour | water | how it is |
|---|---|---|
| 500 g | 325 g | easy to shape |
| 500 g | 400 g | open, and sticky |

\`\`\`js
const dough = { flour: 500, water: 375 } // 75 %
\`\`\`

See [the table of flours](https://example.org/flour), or run \`bread --help\`.
`

/** @returns a PNG: hills before an evening sky */
function picture(width: number, height: number): Buffer {
  const rows = Array.from({ length: height }, (_, y) => {
    const row = Buffer.alloc(1 + 3 * width)
    for (let x = 0; x < width; x++) {
      const isHill = y > height * (0.62 + 0.12 * Math.sin(x / 90) + 0.04 * Math.sin(x / 23))
      const [red, green, blue] = isHill ? [38, 74, 68] : [240 - y / 5, 190 - y / 3, 150 + y / 6]
      row.set([red, green, blue].map(Math.round), 1 + 3 * x)
    }
    return row
  })
  const head = Buffer.alloc(13)
  head.writeUInt32BE(width, 0)
  head.writeUInt32BE(height, 4)
  head.set([8, 2, 0, 0, 0], 8)
  const chunks = [
    chunk('IHDR', head),
    chunk('IDAT', deflateSync(Buffer.concat(rows))),
    chunk('IEND', Buffer.alloc(0)),
  ]
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), ...chunks])
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data])
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(data.length)
  sum.writeUInt32BE(crc32(body))
  return Buffer.concat([length, body, sum])
}

/** Some notes to look at, two revisions of one among them. */
async function fill(stage: Stage, database: string): Promise<void> {
  const now = Date.now()
  const note = (id: string, title: string, body: string, more: object, hours: number) => ({
    _id: `note:${id}`,
    title,
    body,
    bookId: '',
    tags: [],
    createdAt: now - hours * 3_600_000,
    updatedAt: now - hours * 3_600_000,
    ...more,
  })
  const plan = 'Friday\n- train at 16:40\n- key at the neighbours'
  const docs = [
    { _id: 'book:kitchen', name: 'Kitchen' },
    { _id: 'book:travel', name: 'Travel' },
    { _id: 'book:work', name: 'Work' },
    { _id: 'tag:slow', name: 'slow' },
    { _id: 'tag:weekend', name: 'weekend' },
    note('1', 'Bread', RECIPE, { bookId: 'book:kitchen', tags: ['tag:slow', 'tag:weekend'] }, 1),
    note(
      '3',
      'Questions for Thursday',
      'Who answers the phone?\nWhat does it cost?',
      { bookId: 'book:work' },
      30,
    ),
    note('4', 'Books to read', '- The Left Hand of Darkness\n- Middlemarch\n\n![cover.png](file:1)', {}, 90),
    note('6', 'Scratch', 'Nothing that anybody needs.', {}, 500),
    {
      _id: 'file:1',
      name: 'cover.png',
      contentType: 'image/png',
      _attachments: { index: { content_type: 'image/png', data: picture(640, 360).toString('base64') } },
    },
    note(
      '5',
      'A very long title that does not fit into the list of notes at all',
      'Short.',
      { tags: ['tag:slow'] },
      400,
    ),
  ]
  await stage.server.call('POST', `/${database}/_bulk_docs`, { docs })
  const versions = [
    {
      ...note(
        '2',
        'Weekend',
        `${plan}\n- bring the tent`,
        { bookId: 'book:travel', tags: ['tag:weekend'] },
        3,
      ),
      device: { id: 'desk', name: 'Firefox on Linux' },
      _rev: '1-a',
    },
    {
      ...note('2', 'Weekend', `${plan}\n- bring the good shoes\n- and a map`, { bookId: 'book:travel' }, 4),
      _rev: '1-b',
    },
  ]
  await stage.server.call('POST', `/${database}/_bulk_docs`, { docs: versions, new_edits: false })
}

export async function looks(t: Test, stage: Stage): Promise<void> {
  if (process.env.NOTES_SCREENSHOTS) await mkdir(FOLDER, { recursive: true })
  const more = process.env.NOTES_SCREENSHOTS ? MORE_LOOKS : []
  await t.test('looks', { jobs: LOOKS.length }, async (t) => {
    await Promise.all(
      [...LOOKS, ...more].map((look) => t.test(look.name, { buffered: true }, (t) => show(t, stage, look))),
    )
  })
}

async function show(t: Test, stage: Stage, look: Look): Promise<void> {
  // Of its own, since they run at once, and each moves a note to the trash.
  const database = `looks-${look.name}`
  const address = await stage.database(database)
  await fill(stage, database)
  const device = await stage.device(t, look)
  const { page } = device
  let at = 0
  const keep = async (name: string) => {
    at += 1
    if (process.env.NOTES_SCREENSHOTS)
      await page.screenshot({ path: join(FOLDER, `${look.name}-${at}-${name}.png`) })
    t.same(await violationsIn(page), [], `${name} is accessible`)
    t.ok((await overflowOf(page)) <= 0, `${name} fits the width`)
  }
  await keep('empty')
  await device.preferences()
  await page.getByRole('button', { name: 'Sign in' }).waitFor()
  await keep('hosted')
  await device.apply(address)
  await device.status('Up to date')
  await keep('advanced')
  if (look.size === 'phone') {
    await device.go('#/preferences')
    await keep('sections')
    await device.preferences()
  }
  await page.getByLabel('ADDRESS', { exact: true }).fill(address.replace(/:\d+\//, '/'))
  await page.getByRole('button', { name: 'Network diagnosis' }).click()
  await device.finding('address')
  await page.locator('[data-finding]').scrollIntoViewIfNeeded()
  await keep('diagnosis')
  await page.getByLabel('ADDRESS', { exact: true }).fill(`http://127.0.0.1:${await freePort()}/looks`)
  await page.getByRole('button', { name: 'Network diagnosis' }).click()
  await device.finding('refused')
  await page.locator('[data-finding]').scrollIntoViewIfNeeded()
  await keep('finding')
  await device.go('#/notes')
  await device.row('Bread').waitFor()
  await keep('list')
  if (look.size === 'phone' || look.size === 'tablet') {
    await page.getByRole('button', { name: 'Menu', exact: true }).click()
    await until('the menu is there', async () => (await page.locator('.sidebar').boundingBox())?.x === 0)
    await keep('menu')
    await page.keyboard.press('Escape')
    await page.locator('.sidebar').waitFor({ state: 'hidden' })
  }
  await device.read('Bread')
  await keep('reading')
  await page.getByRole('button', { name: 'Write' }).click()
  await keep('writing')
  if (look.size === 'desktop') {
    await page.getByRole('button', { name: 'Both' }).click()
    await page.locator('.preview .tok-keyword').waitFor()
    await keep('both')
    await page.getByRole('button', { name: 'Write' }).click()
  }
  await page.evaluate("document.querySelector('.title').blur()")
  await page.locator('.sheet').focus()
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor()
  await keep('help')
  await page.keyboard.press('Escape')
  await device.go('#/notes?shelf=book:kitchen')
  await page.getByRole('button', { name: 'Rename or delete the book' }).click()
  await keep('book')
  await page.keyboard.press('Escape')
  await device.read('Scratch')
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await page.getByRole('button', { name: 'Undo' }).waitFor()
  await keep('deleted')
  await device.go('#/notes?shelf=trash')
  await device.row('Scratch').click()
  await page.getByText('This note is in the trash.').waitFor()
  await keep('trashed')
  await page.getByRole('button', { name: 'Delete for good' }).click()
  await keep('delete-for-good')
  await page.keyboard.press('Escape')
  await page.getByRole('button', { name: 'Restore' }).click()
  await page.getByText('This note is in the trash.').waitFor({ state: 'detached' })
  await device.go('#/notes')
  await device.read('Books to read')
  await page.getByRole('button', { name: 'Read' }).click()
  await page.getByRole('img', { name: 'cover.png' }).waitFor()
  await keep('picture')
  await device.read('Weekend')
  await keep('conflict-notice')
  await page.getByRole('link', { name: 'Compare the versions' }).click()
  await page.locator('.version').nth(1).waitFor()
  await keep('conflict')
  await device.preferences('logging')
  await page.getByLabel('Main process logging').check()
  await device.choose("Don't Sync")
  await keep('dont-sync')
  await device.choose('Advanced')
  await device.status('Up to date')
  await device.preferences('logging')
  await page.locator('.events li').first().waitFor()
  await keep('logging')
  await device.preferences('about')
  await page.getByRole('heading', { name: 'On this device' }).waitFor()
  await keep('about')
  await device.signIn('anna', 'anna')
  await page.getByText('Signed in as anna').waitFor()
  await page.locator('.refusals').waitFor()
  await device.status('Up to date')
  await keep('signed-in')
}
