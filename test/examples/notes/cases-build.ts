import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Test } from 'tap'
import { until } from '../../helpers/until.ts'
import type { Stage } from './stage.ts'

/** Bytes of all that a first visit loads before it can be used, compressed. */
const MOST = 150_000

/** What the page itself, its scripts and styles name; the editor is asked for later, when the page is idle. */
export async function firstLoad(t: Test, stage: Stage): Promise<void> {
  const context = await stage.browser.newContext()
  t.teardown(() => context.close())
  // The page never gets idle, so what is loaded now is what the first screen needs.
  await context.addInitScript('globalThis.requestIdleCallback = (act) => { globalThis.idle = act; return 0 }')
  const page = await context.newPage()
  const asked = new Set<string>()
  page.on('request', (request) => asked.add(new URL(request.url()).pathname))
  await page.goto(stage.origin, { waitUntil: 'networkidle' })
  await page.locator('.rows').waitFor({ state: 'attached' })
  const first = await sizeOf(stage, asked)
  t.comment(`first load: ${first} bytes in ${asked.size} files`)
  t.ok(first < MOST, `${first} bytes`)
  const loaded = asked.size
  await page.evaluate('globalThis.idle()')
  await until('the editor comes', async () => asked.size > loaded)
  await page.waitForLoadState('networkidle')
  t.comment(`with the editor: ${await sizeOf(stage, asked)} bytes in ${asked.size} files`)
}

async function sizeOf({ folder }: Stage, paths: ReadonlySet<string>): Promise<number> {
  const sizes = [...paths].map(async (path) => {
    const content = await readFile(join(folder, path === '/' ? 'index.html' : path))
    return gzipSync(content).length
  })
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}
