/** The app in a browser's profile of its own, and what a person does with it. */
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core'
import type { Test } from 'tap'
import { PATIENCE } from '../../helpers/browser.ts'
import { until } from '../../helpers/until.ts'

export interface DeviceOptions {
  readonly size?: 'desktop' | 'tablet' | 'phone'
  readonly dark?: boolean
  /** Whether it trusts whatever certificate a server shows. */
  readonly trusting?: boolean
}

const SIZES = {
  desktop: { width: 1280, height: 800 },
  tablet: { width: 820, height: 1100 },
  phone: { width: 390, height: 844 },
} as const

/** A request that has left the page for elsewhere. */
export interface Sent {
  readonly method: string
  readonly url: URL
  readonly body: string
}

export class Device {
  readonly page: Page
  readonly context: BrowserContext
  readonly sent: Sent[] = []
  readonly #origin: string

  private constructor(context: BrowserContext, page: Page, origin: string) {
    this.context = context
    this.page = page
    this.#origin = origin
    context.on('request', (request) => {
      const url = new URL(request.url())
      if (url.origin === origin || url.protocol === 'blob:') return
      this.sent.push({ method: request.method(), url, body: request.postData() ?? '' })
    })
  }

  /** A new profile with the app open in it. */
  static async open(t: Test, browser: Browser, origin: string, options: DeviceOptions = {}): Promise<Device> {
    const context = await browser.newContext({
      viewport: SIZES[options.size ?? 'desktop'],
      colorScheme: options.dark ? 'dark' : 'light',
      ignoreHTTPSErrors: options.trusting ?? false,
      locale: 'en-GB',
      hasTouch: options.size === 'phone',
    })
    t.teardown(() => context.close())
    context.setDefaultTimeout(PATIENCE)
    const page = await context.newPage()
    page.on('pageerror', (error) => t.fail('an error in the page', { error: String(error) }))
    const device = new Device(context, page, origin)
    await page.goto(origin)
    await device.listed().waitFor({ state: 'attached' })
    return device
  }

  go(hash: string): Promise<void> {
    return this.page.evaluate(`location.hash = ${JSON.stringify(hash)}`) as Promise<void>
  }

  /** The list of notes. */
  listed(): Locator {
    return this.page.locator('.rows')
  }

  /** A note of the list, by its title. */
  row(title: string): Locator {
    return this.page.locator('.row', { has: this.page.getByText(title, { exact: true }) })
  }

  async write(title: string, body: string): Promise<void> {
    await this.go('#/notes')
    await this.page.getByRole('button', { name: 'New note' }).first().click()
    await this.page.getByLabel('Title', { exact: true }).fill(title)
    await this.fillText(body)
    await this.arrived(title)
  }

  /** Opens a note and replaces its text. */
  async edit(title: string, body: string): Promise<void> {
    await this.read(title)
    await this.page.getByRole('button', { name: 'Write' }).click()
    await this.fillText(body)
    await this.row(title)
      .getByText(body.split('\n')[0] ?? '')
      .waitFor({ state: 'attached' })
  }

  /** The text of the open note. */
  text(): Locator {
    return this.page.getByLabel('Text', { exact: true })
  }

  /** The lines of the text that are drawn: all of a short note. */
  async textValue(): Promise<string> {
    return (await this.text().locator('.cm-line').allTextContents()).join('\n')
  }

  /** Replaces the text, as somebody who pastes does. */
  async fillText(text: string): Promise<void> {
    await this.text().focus()
    await this.page.keyboard.press('Control+a')
    await this.page.evaluate(`(() => {
      const clipboardData = new DataTransfer()
      clipboardData.setData('text/plain', ${JSON.stringify(text)})
      const editor = document.activeElement.shadowRoot.activeElement
      editor.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }))
    })()`)
  }

  async read(title: string): Promise<void> {
    await this.go('#/notes')
    await this.row(title).click()
    const field = this.page.locator('.title')
    await until(`${title} is open`, async () => (await field.inputValue()) === title)
  }

  /**
   * Waits for a note with its text: what is listed comes from the database, and a title may be there before the text. Who
   * edits it then edits the last revision.
   */
  async arrived(title: string): Promise<void> {
    await this.row(title).filter({ hasNotText: 'No text yet' }).first().waitFor({ state: 'attached' })
  }

  async preferences(section = 'synchronization'): Promise<void> {
    await this.go(`#/preferences/${section}`)
  }

  async choose(mode: string): Promise<void> {
    await this.preferences()
    await this.page.getByRole('radio', { name: mode }).check()
  }

  async apply(address: string): Promise<void> {
    await this.choose('Advanced')
    await this.page.getByLabel('ADDRESS', { exact: true }).fill(address)
    await this.page.getByRole('button', { name: 'Apply' }).click()
  }

  async signIn(name: string, password: string): Promise<void> {
    await this.choose('Hosted Sync Server')
    await this.page.getByLabel('Account', { exact: true }).fill(name)
    await this.page.getByLabel('Password', { exact: true }).fill(password)
    await this.page.getByRole('button', { name: 'Sign in' }).click()
  }

  /** Waits until Preferences says so. */
  async status(text: string): Promise<void> {
    await this.preferences()
    await this.page.locator('.status-line', { hasText: text }).waitFor()
  }

  /** The finding that is shown, once there is one of this code. */
  async finding(code: string): Promise<string> {
    const shown = this.page.locator(`[data-finding="${code}"]`).first()
    await shown.waitFor()
    return shown.innerText()
  }

  async addPicture(name: string): Promise<void> {
    await this.page.getByRole('button', { name: 'Write' }).click()
    const content = Buffer.from(PIXEL, 'base64')
    await this.page
      .getByLabel('Add a picture')
      .setInputFiles({ name, mimeType: 'image/png', buffer: content })
    await until(`${name} is taken in`, async () => (await this.textValue()).includes(`![${name}](file:`))
  }

  /** Whether the focus is on an element of this selector, or in it. */
  isFocused(selector: string): Promise<boolean> {
    return this.page.evaluate(
      `document.activeElement.closest(${JSON.stringify(selector)}) !== null`,
    ) as Promise<boolean>
  }

  /** What its own database holds. */
  async ids(): Promise<readonly string[]> {
    return (await this.page.evaluate(ALL_IDS)) as string[]
  }

  get origin(): string {
    return this.#origin
  }
}

/** A picture of 24 by 16 points. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAABgAAAAQCAIAAACDRijCAAAAJ0lEQVR42mPg7bxOFcRw2S+OKmgUDBo1aBiAUYNGDRo1aNSgYQAANHfN2YJoNdIAAAAASUVORK5CYII='

/** PouchDB's store of documents, read beside PouchDB: each id once, deleted ones left out. */
const ALL_IDS = `new Promise((resolve, reject) => {
  const opening = indexedDB.open('_pouch_notes')
  opening.onerror = () => reject(opening.error)
  opening.onsuccess = () => {
    const db = opening.result
    const asked = db.transaction('document-store').objectStore('document-store').getAll()
    asked.onerror = () => reject(asked.error)
    asked.onsuccess = () => {
      db.close()
      resolve(asked.result.filter((doc) => doc.deletedOrLocal !== '1').map((doc) => doc.id))
    }
  }
})`
