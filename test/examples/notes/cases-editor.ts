/** The editor: the caret, undo, lists, tasks, code, and the keyboard alone. */
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import type { Device } from './device.ts'
import type { Stage } from './stage.ts'

/** Edits a note as another device does. */
async function editElsewhere(stage: Stage, database: string, change: object): Promise<void> {
  const path = `/${database}/note:1`
  const { json } = await stage.server.call('GET', path)
  const { status } = await stage.server.call('PUT', path, { ...json, ...change })
  if (status !== 201) throw new Error(`${status}`)
}

/** Another device edits the open note: caret and undo stay with what was typed here. */
export async function caretAndUndo(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('caret')
  const note = { title: 'Plan for June', body: 'one\ntwo\nthree', bookId: '', tags: [] }
  await stage.server.call('PUT', '/caret/note:1', note)
  const device = await stage.device(t)
  const { page } = device
  await device.apply(address)
  await device.read('Plan for June')
  await page.getByRole('button', { name: 'Write' }).click()
  const bodyAtServer = async () => (await stage.server.call('GET', '/caret/note:1')).json.body as string
  await device.text().locator('.cm-line').nth(1).click()
  await page.keyboard.press('End')
  await page.keyboard.type(' mine')
  await until('it is saved', async () => (await bodyAtServer()) === 'one\ntwo mine\nthree')
  await editElsewhere(stage, 'caret', { body: 'before\none\ntwo mine\nthree\nafter' })
  await until('the edit comes in', async () => (await device.textValue()).endsWith('after'))
  await page.keyboard.type('!')
  t.equal(await device.textValue(), 'before\none\ntwo mine!\nthree\nafter', 'the caret is where it was')

  await page.keyboard.press('Control+Enter')
  await page.locator('.preview').getByText('two mine!').waitFor()
  await page.keyboard.press('e')
  await until('the text has the focus', () => device.isFocused('.body'))
  // Pauses between the keys make steps of their own. Past the first step there is nothing more to undo.
  await until('undone', async () => {
    await page.keyboard.press('Control+z')
    return (await device.textValue()) === 'before\none\ntwo\nthree\nafter'
  })
  t.pass('undo outlives a look at Read, and reverts only what was typed here')
  await until('it is saved', async () => (await bodyAtServer()) === 'before\none\ntwo\nthree\nafter')

  const title = page.getByLabel('Title', { exact: true })
  await title.focus()
  await page.evaluate("document.querySelector('.title').setSelectionRange(4, 4)")
  await editElsewhere(stage, 'caret', { title: 'The Plan for June' })
  await until('the title comes in', async () => (await title.inputValue()).startsWith('The'))
  await page.keyboard.type('s')
  t.equal(await title.inputValue(), 'The Plans for June')
}

/** A note is begun, written, read and found again without a mouse. */
export async function byKeyboard(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  const { page } = device
  await device.choose("Don't Sync")
  await device.write('First', 'so that there is a list')
  const stored = (await device.ids()).length
  await device.go('#/notes')
  await page.keyboard.press('n')
  await until('the title has the focus', () => device.isFocused('.title'))
  await page.keyboard.press('Escape')
  await device.go('#/notes')
  await page.getByText('Choose a note').waitFor()
  t.equal((await device.ids()).length, stored, 'nothing was written, nothing is stored')

  await page.keyboard.press('n')
  await until('the title has the focus', () => device.isFocused('.title'))
  await page.keyboard.type('Packing n/?')
  await page.keyboard.press('Enter')
  await until('the text has the focus', () => device.isFocused('.body'))
  await page.keyboard.type('- tent\npoles\n')
  await page.keyboard.press('Shift+Tab')
  await page.keyboard.type('map')
  await page.keyboard.press('ArrowUp')
  await page.keyboard.press('Tab')
  t.equal(await device.textValue(), '- tent\n  - poles\n- map', 'a list goes on, and its items move in')
  await device.row('Packing n/?').waitFor()
  await until('it has an address', async () => /note=note/.test(page.url()))
  await page.keyboard.press('Escape')
  await page.keyboard.press('Shift+Tab')
  t.notOk(await device.isFocused('.body'), 'Escape, then Tab leaves the text')

  await page.keyboard.press('Escape')
  await device.text().focus()
  await page.keyboard.press('Control+Enter')
  await page.locator('.preview li').getByText('poles').waitFor()
  await page.keyboard.press('/')
  await until('the search has the focus', () => device.isFocused('.search'))
  await page.keyboard.type('first')
  await until('one is found', async () => (await page.locator('.row').count()) === 1)
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Enter')
  await until('First is open', async () => (await page.locator('.title').inputValue()) === 'First')
  const tabs = await tabsUntil(device, '.title')
  t.ok(tabs <= 8, `${tabs} Tabs from the list to the note`)

  await page.keyboard.press('Escape')
  await page.locator('.row').focus()
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  t.ok(await device.isFocused('.row'), 'the focus is back')
  await page.getByLabel('Search').fill('')
  await page.locator('.row').nth(1).waitFor()
  await page.locator('.row').first().focus()
  await page.keyboard.press('ArrowDown')
  t.ok(await device.isFocused('.rows li:nth-child(2)'))
  await page.keyboard.press('Home')
  t.ok(await device.isFocused('.rows li:first-child'))
}

async function tabsUntil(device: Device, selector: string): Promise<number> {
  for (let count = 1; count <= 40; count++) {
    await device.page.keyboard.press('Tab')
    if (await device.isFocused(selector)) return count
  }
  return Number.POSITIVE_INFINITY
}

const FENCE = '```'
const LONG = Array.from({ length: 60 }, (_, at) => `Paragraph ${at} of a long note.`).join('\n\n')

/** Tasks are ticked where a note is read, its code has colours, and text and note are side by side. */
export async function reading(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  const { page } = device
  await device.choose("Don't Sync")
  const body = `- [ ] pack\n- [x] book\n\n${FENCE}js\nconst a = 1\n- [ ] no task\n${FENCE}\n\n${LONG}`
  await device.write('Trip', body)
  await page.getByRole('button', { name: 'Read' }).click()
  await page.locator('.preview .tok-keyword', { hasText: 'const' }).waitFor()
  const task = page.getByRole('checkbox', { name: 'pack' })
  await task.focus()
  await page.keyboard.press('Space')
  await page.locator('input[checked][aria-label=pack]').waitFor()
  t.ok(await device.isFocused('[aria-label=pack]'), 'the focus stays on the task')
  await page.getByRole('button', { name: 'Write' }).click()
  await until('it is in the text', async () =>
    (await device.textValue()).startsWith('- [x] pack\n- [x] book'),
  )
  await page.keyboard.press('Control+z')

  await page.getByRole('button', { name: 'Both' }).click()
  await page.getByRole('checkbox', { name: 'pack', checked: false }).waitFor()
  await page.evaluate(`globalThis.text = document.querySelector('.body').shadowRoot.querySelector('.cm-scroller')
    globalThis.note = document.querySelector('.preview')
    text.scrollTop = text.scrollHeight`)
  await until('the note follows', () =>
    holds(device, 'note.scrollHeight - note.clientHeight - note.scrollTop < 60'),
  )
  await page.evaluate('note.scrollTop = 0')
  await until('the text follows', () => holds(device, 'text.scrollTop === 0'))
  await page.reload()
  await device.read('Trip')
  await page.locator('.editor.is-both').waitFor()
  t.pass('the choice is kept')
}

function holds({ page }: Device, expression: string): Promise<boolean> {
  return page.evaluate(expression) as Promise<boolean>
}
