/** Debian's Chromium, and what tests of pages ask it. */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { type Browser, chromium, type Page } from 'playwright-core'
import type { Test } from 'tap'

const CHROMIUM = '/usr/bin/chromium'
/** Of a step, on a machine that is slow and busy; in milliseconds. `PATIENCE=5000`: a step that fails ends sooner. */
export const PATIENCE = Number(process.env.PATIENCE ?? 60_000)

/** @throws when there is no Chromium, with the command that installs it */
export async function launchBrowser(t: Test): Promise<Browser> {
  if (!existsSync(CHROMIUM)) {
    throw new Error(
      'Chromium is missing: sudo apt-get install --yes chromium (or npm run pretest:full, which does so)',
    )
  }
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    // Its sandbox does not run as root.
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  })
  t.teardown(() => browser.close())
  return browser
}

let axe: Promise<string> | undefined

/** @returns the rules of accessibility that a page breaks, and where */
export async function violationsIn(page: Page): Promise<unknown> {
  axe ??= readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
  await page.evaluate(`window.axe === undefined && (() => { ${await axe} })()`)
  return page.evaluate(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations.map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(({ html, any }) => [html.slice(0, 200), any.map(({ message }) => message)])]))`)
}

/** @returns by how many pixels a page is wider than its window */
export async function overflowOf(page: Page): Promise<number> {
  return (await page.evaluate('document.documentElement.scrollWidth - innerWidth')) as number
}
