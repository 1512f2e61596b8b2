/** What happens to a note while it is written and read, and what notes of others may do to a page. */
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import type { Stage } from './stage.ts'

/** Writes a note as another device would. @returns its revision */
async function putNote(stage: Stage, database: string, id: string, members: object): Promise<string> {
  const now = Date.now()
  const note = { title: '', body: '', bookId: '', tags: [], createdAt: now, updatedAt: now, ...members }
  const { status, json } = await stage.server.call('PUT', `/${database}/${encodeURIComponent(id)}`, note)
  if (status !== 201) throw new Error(JSON.stringify(json))
  return json.rev
}

const HOSTILE = `
[a](javascript:hacked=1) [b](data:text/html,<script>hacked=1</script>) [c](vbscript:x) [d](https://example.org/fine)
![e](javascript:hacked=1) ![f](https://127.0.0.1:9/spy.png) ![g](file:none"onerror="hacked=1)

<a href="JaVaScRiPt:hacked=1" onclick="hacked=1" class="curtain" id="app">over all of the page</a>
<div class="curtain" style="position:fixed;inset:0">over all of the page</div>
<img src=x onerror="hacked=1"> <img data-picture="file:none" src="https://127.0.0.1:9/spy.png" onerror="hacked=1">
<svg onload="hacked=1"><script>hacked=1</script></svg><math><mtext><img src=x onerror="hacked=1"></mtext></math>
<form action="https://127.0.0.1:9/"><input type="password" name="body" autofocus><button>Sign in</button></form>
<iframe src="https://127.0.0.1:9/"></iframe><object data="https://127.0.0.1:9/"></object><dialog open>Sign in</dialog>
<style>* { display: none }</style><link rel="stylesheet" href="https://127.0.0.1:9/x.css">
<meta http-equiv="refresh" content="0;url=https://127.0.0.1:9/"><base href="https://127.0.0.1:9/">

- [x] fine
`

const FOUND = `[...document.querySelectorAll('.preview *')].flatMap((element) => [
  element.localName,
  ...[...element.attributes].map(({ name, value }) => element.localName + ' ' + name + '=' + value),
])`

/** Nothing of a note runs, loads, or looks like a part of the app. */
export async function hostileNotes(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('hostile')
  await putNote(stage, 'hostile', 'note:1', { title: 'Hostile', body: HOSTILE })
  await putNote(stage, 'hostile', 'note:2', {
    title: 'Of no time',
    body: 'x',
    updatedAt: 1e300,
    createdAt: '!',
  })
  await putNote(stage, 'hostile', 'book:1', { name: { not: 'a text' } })
  const device = await stage.device(t)
  await device.apply(address)
  await device.go('#/notes')
  await device.arrived('Of no time')
  await device.read('Hostile')
  await device.page.getByRole('link', { name: 'd', exact: true }).waitFor()
  const found = (await device.page.evaluate(FOUND)) as string[]
  const allowed =
    /^(?:p|a|br|ul|li|span|input)$|^a (?:href=(?:https?:.*|)|target=_blank|rel=noopener noreferrer)$|^span class=no-picture$|^input (?:type=checkbox|checked=.*|disabled=.*|data-task=\d+|aria-label=fine)$/
  t.same(
    found.filter((each) => !allowed.test(each)),
    [],
  )
  t.ok(found.includes('input type=checkbox'))
  t.equal(await device.page.evaluate('window.hacked'), undefined)
  t.same(
    device.sent.filter(({ url }) => url.port === '9'),
    [],
    'nothing is loaded from elsewhere',
  )
}

/** Writes a note as a device does that has seen no later revision than `rev`. */
async function replicateNote(
  stage: Stage,
  database: string,
  id: string,
  rev: string,
  members: object,
): Promise<void> {
  const [start, hash] = rev.split('-') as [string, string]
  const _revisions = { start: Number(start) + 1, ids: ['f'.repeat(32), hash] }
  const note = {
    _id: id,
    _rev: `${Number(start) + 1}-${'f'.repeat(32)}`,
    _revisions,
    bookId: '',
    tags: [],
    ...members,
  }
  await stage.server.call('POST', `/${database}/_bulk_docs`, { docs: [note], new_edits: false })
}

/** Somebody types while another device's edit of the same note comes in. */
export async function typingOver(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('typing')
  const rev = await putNote(stage, 'typing', 'note:1', { title: 'Both', body: 'begun' })
  const device = await stage.device(t)
  const { page } = device
  await device.apply(address)
  await device.go('#/notes')
  await device.arrived('Both')
  await device.read('Both')
  await page.getByRole('button', { name: 'Write' }).click()
  await device.text().focus()
  await page.keyboard.press('Control+End')
  await page.keyboard.type(' mine')
  await replicateNote(stage, 'typing', 'note:1', rev, { title: 'Both', body: 'begun theirs' })
  let typed = ' mine'
  const notice = page.getByText('Two devices have changed this note')
  await until('the edits meet', async () => {
    await page.keyboard.type('.')
    typed += '.'
    return notice.isVisible()
  })
  await page.keyboard.type(' to the end')
  t.equal(await device.textValue(), `begun${typed} to the end`, 'text that is being typed is kept')
  await until('both are at the server', async () => {
    const { json } = await stage.server.call('GET', '/typing/note:1?open_revs=all', undefined, 'anna:anna')
    const bodies = (json as { ok: { body: string } }[]).map(({ ok }) => ok.body).sort()
    return JSON.stringify(bodies) === JSON.stringify([`begun theirs`, `begun${typed} to the end`].sort())
  })
}

/** What comes in does not disturb who reads, nor who types. */
export async function undisturbed(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('calm')
  await putNote(stage, 'calm', 'note:1', { title: 'Calm', body: 'some words to read' })
  const device = await stage.device(t)
  const { page } = device
  await device.apply(address)
  await device.go('#/notes')
  await device.arrived('Calm')
  await device.read('Calm')
  await page.getByText('some words to read').last().waitFor()
  await page.evaluate("globalThis.read = document.querySelector('.preview > *')")
  await putNote(stage, 'calm', 'note:2', { title: 'Another', body: 'x' })
  await device.arrived('Another')
  t.ok(
    await page.evaluate("document.querySelector('.preview > *') === globalThis.read"),
    'it is not made anew',
  )

  await page.getByRole('button', { name: 'Write' }).click()
  for (const tag of ['one', 'two', 'three']) {
    await page.getByLabel('Add a tag').pressSequentially(tag)
    await page.keyboard.press('Enter')
  }
  await page.locator('.meta .chip').nth(2).waitFor()
  t.same(
    await page.locator('.meta .chip').allInnerTexts(),
    ['one', 'two', 'three'],
    'each tag that was added',
  )

  // The next frame comes late, as on a busy machine.
  await page.evaluate('globalThis.requestAnimationFrame = () => 0')
  await page.getByRole('button', { name: 'New book' }).click()
  await device.text().focus()
  await putNote(stage, 'calm', 'note:3', { title: 'A third', body: 'x' })
  await device.arrived('A third')
  await page.keyboard.type('here')
  t.match(await device.textValue(), /here/, 'the keys go where they went before')
}

/** A choice made in one window holds in all. */
export async function twoWindows(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  await device.apply(await stage.database('windows'))
  await device.status('Up to date')
  const other = await device.context.newPage()
  await other.goto(`${device.origin}/#/preferences/synchronization`)
  await other.locator('.status-line', { hasText: 'Up to date' }).waitFor()
  const second = await stage.database('windows-too')
  await device.apply(second)
  await until('the Address is the same', async () => {
    return (
      (await other.getByLabel('ADDRESS', { exact: true }).inputValue()) ===
      second.replace(':anna@', ':••••••••@')
    )
  })
  await device.choose("Don't Sync")
  await other.locator('.status-line', { hasText: 'Not syncing' }).waitFor()
  device.sent.length = 0
  await device.write('For nobody', 'text')
  await other.goto(`${device.origin}/#/notes`)
  await other.locator('.row', { hasText: 'For nobody' }).waitFor()
  t.same(device.sent, [], 'neither window sends anything')
}

const MANY = 3000
/** What is promised is 5 s and 50 ms (bench/RESULTS.md); a machine of CI may be much slower, and busy. */
const MOST_MS = { arrival: 30_000, search: 500 }

/** Thousands of notes: they come, are found, and one is written while they are there. */
export async function manyNotes(t: Test, stage: Stage): Promise<void> {
  const address = await stage.database('many')
  const body = 'A line of a note, with **some** Markdown and [a link](https://example.org/).\n'.repeat(25)
  const docs = Array.from({ length: MANY }, (_, at) => ({
    _id: `note:${String(at).padStart(4, '0')}`,
    ...{ title: `Note ${at}`, body: `${at} ${body}`, bookId: '', tags: [], createdAt: at, updatedAt: at },
  }))
  await stage.server.call('POST', '/many/_bulk_docs', { docs })
  const device = await stage.device(t)
  const { page } = device
  const begun = performance.now()
  await device.apply(address)
  await device.go('#/notes')
  await page.getByRole('link', { name: 'All notes 3,000' }).waitFor()
  const arrival = took(begun)
  t.comment(`${MANY} notes arrive: ${arrival} ms`)
  t.ok(arrival < MOST_MS.arrival, `${arrival} ms`)
  await device.status('Up to date')
  await device.go('#/notes')
  await device.row('Note 2999').waitFor()
  const drawn = await page.locator('.row').count()
  t.ok(drawn < 500, `${drawn} rows are drawn at first`)
  await page.locator('.row').last().focus()
  await page.keyboard.press('End')
  await until('more are drawn', async () => (await page.locator('.row').count()) > drawn)
  const search = Math.round((await page.evaluate(SEARCH)) as number)
  t.comment(`search: ${search} ms`)
  t.ok(search < MOST_MS.search, `${search} ms`)
  await until('one is found', async () => (await page.locator('.row').count()) === 1)
  await device.row('Note 2517').click()
  await page.getByLabel('Search').fill('')
  await page.getByRole('button', { name: 'Write' }).click()
  await page.evaluate(WATCH_TASKS)
  const words = 'and this is what somebody writes into it while they are all there. '
  const writing = performance.now()
  for (let at = 0; at < 3; at++) {
    await device.text().pressSequentially(words)
    // Saved, and so at the head of the list.
    await page.locator('.row').first().getByText('Note 2517', { exact: true }).waitFor()
  }
  const longest = (await page.evaluate('globalThis.longest')) as number
  t.comment(`${words.length * 3} keys: ${took(writing)} ms, longest task ${Math.round(longest)} ms`)
  t.match(await device.textValue(), words.repeat(3).trim())
}

/** The time from the last key of a search to the frame that shows what was found, in milliseconds. */
const SEARCH = `new Promise((resolve) => {
  const input = document.querySelector('.search input')
  input.focus()
  document.execCommand('insertText', false, 'note 251')
  requestAnimationFrame(() => setTimeout(() => {
    const begun = performance.now()
    document.execCommand('insertText', false, '7')
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - begun)))
  }, 300))
})`

const WATCH_TASKS = `globalThis.longest = 0
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration)
}).observe({ entryTypes: ['longtask'] })`

function took(since: number): number {
  return Math.round(performance.now() - since)
}

/** By the keyboard alone, at phone width: the menu takes the focus and gives it back. */
export async function keyboard(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t, { size: 'phone' })
  const { page } = device
  await page.getByRole('button', { name: 'Menu' }).focus()
  await page.keyboard.press('Enter')
  await until('the focus is in the menu', () => device.isFocused('.sidebar'))
  await page.keyboard.press('Escape')
  await until('the focus is back', () => device.isFocused('.menu-button'))
  t.pass('the menu opens and closes by the keyboard')
}

/** A browser that lets the page keep nothing. */
export async function withoutStorage(t: Test, stage: Stage): Promise<void> {
  const context = await stage.browser.newContext()
  t.teardown(() => context.close())
  await context.addInitScript("indexedDB.open = () => { throw new Error('The operation is insecure.') }")
  const page = await context.newPage()
  await page.goto(stage.origin)
  await page.getByText('This browser does not let the page keep notes').waitFor()
  t.pass('it says so')
}
