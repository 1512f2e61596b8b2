/**
 * What the browser tests of the console share: a browser, and a settee of its own process with the built console.
 * `CONSOLE_SCREENSHOTS=1` keeps a picture of every screen in console/screenshots.
 */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import type { Test } from 'tap'
import { ROOT } from '../cli/child.ts'
import { launchBrowser, overflowOf, PATIENCE, violationsIn } from '../helpers/browser.ts'
import { type ChildServer, startChildServer } from '../helpers/child-server.ts'
import { temporaryFolder } from '../helpers/server.ts'

const FOLDER = join(ROOT, 'console/screenshots')

export const SIZES = {
  desktop: { width: 1280, height: 800 },
  tablet: { width: 820, height: 1100 },
  phone: { width: 360, height: 740 },
} as const

export type Size = keyof typeof SIZES

/** Each screen is looked at in these; with `CONSOLE_SCREENSHOTS` in all six. */
const LOOKS: readonly (readonly [Size, 'light' | 'dark'])[] = [
  ['desktop', 'light'],
  ['phone', 'dark'],
]
const ALL_LOOKS: readonly (readonly [Size, 'light' | 'dark'])[] = [
  ...LOOKS,
  ['desktop', 'dark'],
  ['tablet', 'light'],
  ['tablet', 'dark'],
  ['phone', 'light'],
]

export const ADMIN = { name: 'root', password: 'secret' } as const

export interface StageOptions {
  /** More lines of local.ini. */
  readonly ini?: string
  /** Whether the server begins without an admin. */
  readonly isOpen?: boolean
  /** Prepares the data folder before the server starts. */
  readonly prepare?: (dataDir: string) => Promise<void>
  /** By default nothing is logged, which the server itself calls unsafe. */
  readonly logLevel?: 'warning'
}

export interface Stage {
  readonly server: ChildServer
  readonly browser: Browser
  /** Calls the server as the admin, or as `name:password`. @returns status and JSON */
  call(method: string, path: string, body?: unknown, auth?: string): Promise<Answer>
  /** A page in a profile of its own, at the console's address. An error in the page fails the test. */
  open(t: Test, options?: BrowserContextOptions & { readonly hash?: string }): Promise<Page>
  /** The same, signed in: as the admin, or as the account, whose password is its name. */
  signedIn(t: Test, options?: SignedInOptions): Promise<Page>
}

interface SignedInOptions extends BrowserContextOptions {
  readonly account?: string
  readonly hash?: string
}

export interface Answer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
}

/** Needs `npm run build`, which the tiers run first. */
export async function openStage(
  t: Test,
  { ini = '', isOpen = false, prepare, logLevel }: StageOptions = {},
): Promise<Stage> {
  const dataDir = await temporaryFolder(t)
  const admins = isOpen ? '' : `[admins]\n${ADMIN.name} = ${ADMIN.password}\n`
  await writeFile(join(dataDir, 'local.ini'), `${admins}[chttpd_auth]\niterations = 10\n${ini}\n`)
  await prepare?.(dataDir)
  const [server, browser] = await Promise.all([
    startChildServer(t, { dataDir, ...(logLevel && { logLevel }) }),
    launchBrowser(t),
  ])
  const open: Stage['open'] = async (test, { hash = '', ...options } = {}) => {
    const context = await browser.newContext({
      viewport: SIZES.desktop,
      locale: 'en-GB',
      reducedMotion: 'reduce',
      ...options,
    })
    test.teardown(() => context.close())
    context.setDefaultTimeout(PATIENCE)
    const page = await context.newPage()
    page.on('pageerror', (error) => test.fail('an error in the page', { error: String(error) }))
    page.on('console', (message) => {
      if (/Content Security Policy|Content-Security-Policy/.test(message.text())) {
        test.fail('the page breaks its policy', { message: message.text() })
      }
    })
    await page.goto(`${server.url}/_utils/${hash}`)
    return page
  }
  return {
    server,
    browser,
    open,
    call: (method, path, body, auth) => ask(server.url, method, path, body, auth),
    signedIn: async (test, { account, ...options } = {}) => {
      const page = await open(test, options)
      const [name, password] = account === undefined ? [ADMIN.name, ADMIN.password] : [account, account]
      await signIn(page, name, password)
      await page.locator('.frame').waitFor()
      return page
    },
  }
}

export async function signIn(page: Page, name: string, password: string): Promise<void> {
  await page.getByLabel('Name', { exact: true }).fill(name)
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.getByRole('button', { name: 'Sign in' }).click()
}

async function ask(
  url: string,
  method: string,
  path: string,
  body: unknown,
  auth = `${ADMIN.name}:${ADMIN.password}`,
): Promise<Answer> {
  const answer = await fetch(url + path, {
    method,
    headers: {
      authorization: `Basic ${Buffer.from(auth).toString('base64')}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, json: await answer.json() }
}

/** Goes to a screen, and waits until it has loaded. */
export async function goTo(page: Page, hash: string): Promise<void> {
  await page.evaluate(`location.hash = ${JSON.stringify(hash)}`)
  await settled(page)
}

/** Waits until nothing is loading, or a dialog is in front of it. */
export async function settled(page: Page): Promise<void> {
  const loading = '.skeleton, [aria-busy="true"]'
  await page.locator(`body:not(:has(${loading})), body:has(dialog[open])`).waitFor({ state: 'attached' })
}

/** Looks at the present screen in each size and scheme: it is accessible, and fits the width. */
export async function look(t: Test, page: Page, name: string): Promise<void> {
  const isKept = process.env.CONSOLE_SCREENSHOTS !== undefined
  if (isKept) await mkdir(FOLDER, { recursive: true })
  for (const [size, scheme] of isKept ? ALL_LOOKS : LOOKS) {
    await page.setViewportSize(SIZES[size])
    await page.emulateMedia({ colorScheme: scheme })
    await settled(page)
    if (isKept) await page.screenshot({ path: join(FOLDER, `${name}-${size}-${scheme}.png`) })
    t.same(await violationsIn(page), [], `${name}, ${size}, ${scheme}: accessible`)
    t.ok((await overflowOf(page)) <= 0, `${name}, ${size}, ${scheme}: fits the width`)
  }
  await page.setViewportSize(SIZES.desktop)
  await page.emulateMedia({ colorScheme: 'light' })
}
