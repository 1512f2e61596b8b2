/** What the console's page may load: its own scripts, wherever a proxy serves it, and never what a database stores. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { openStage, type Stage, signIn } from '../../console/stage.ts'
import { PATIENCE } from '../../helpers/browser.ts'

t.setTimeout(300_000)

/** A proxy that removes a prefix. @returns the address with the prefix */
async function prefixed(t: Test, target: string, prefix: string, host = '127.0.0.1'): Promise<string> {
  const { hostname, port } = new URL(target)
  const proxy = createServer((asked, answer) => {
    const path = asked.url?.startsWith(prefix) ? asked.url.slice(prefix.length) : '/none'
    const { method, headers } = asked
    const passed = request({ hostname, port, path, method, headers }, (got) => {
      answer.writeHead(got.statusCode ?? 500, got.headers)
      got.pipe(answer)
    })
    passed.on('error', () => answer.destroy())
    asked.pipe(passed)
  })
  proxy.listen(0, host)
  await once(proxy, 'listening')
  t.teardown(() => {
    proxy.closeAllConnections()
    proxy.close()
  })
  const { port: own } = proxy.address() as AddressInfo
  return `http://${host.includes(':') ? `[${host}]` : host}:${own}${prefix}`
}

/** Attempts of a script of the page to load what a database stores, each of which says what came of it. */
const ATTEMPTS: Readonly<Record<string, string>> = {
  script: loaded('script', "type: 'text/javascript', src: '../db/js/evil.js'"),
  module: loaded('script', "type: 'module', src: '../db/js/evil.js'"),
  'module preload': loaded('link', "rel: 'modulepreload', href: '../db/js/evil.js'"),
  'dynamic import': `import('../db/js/evil.js').then(() => 'loaded', () => 'blocked')`,
  'inline script': `new Promise((resolve) => {
    addEventListener('securitypolicyviolation', () => resolve('blocked'), { once: true })
    document.head.append(Object.assign(document.createElement('script'), { textContent: 'window.evil = true' }))
  })`,
  'script of the parser': `new Promise((resolve) => {
    addEventListener('securitypolicyviolation', () => resolve('blocked'), { once: true })
    const frame = document.createElement('div')
    frame.innerHTML = '<img src="data:," onerror="window.evil = true">'
    document.body.append(frame)
  })`,
  'style sheet': loaded('link', "rel: 'stylesheet', href: '../db/css/evil.css'"),
  worker: `new Promise((resolve) => {
    new Worker('../db/js/evil.js').onerror = () => resolve('blocked')
  })`,
  'service worker': `navigator.serviceWorker.register('../db/js/evil.js').then(() => 'loaded', () => 'blocked')`,
  frame: `new Promise((resolve) => {
    addEventListener('securitypolicyviolation', () => resolve('blocked'), { once: true })
    document.body.append(Object.assign(document.createElement('iframe'), { src: '../db/html/evil.html' }))
  })`,
}

function loaded(name: string, properties: string): string {
  return `new Promise((resolve) => {
    const element = Object.assign(document.createElement('${name}'), { ${properties} })
    element.onload = () => resolve('loaded')
    element.onerror = () => resolve('blocked')
    document.head.append(element)
  })`
}

async function put(stage: Stage, name: string, type: string, body: string): Promise<void> {
  const { status } = await fetch(`${stage.server.url}/db/${name.split('.').at(-1)}/${name}`, {
    method: 'PUT',
    body,
    headers: { 'content-type': type, authorization: `Basic ${btoa('root:secret')}` },
  })
  if (status !== 201) throw new Error(`${name} was not stored: ${status}`)
}

async function signedIn(t: Test, stage: Stage, address: string): Promise<Page> {
  const context = await stage.browser.newContext({ reducedMotion: 'reduce' })
  context.setDefaultTimeout(PATIENCE)
  t.teardown(() => context.close())
  const page = await context.newPage()
  page.on('pageerror', (error) => t.fail('an error in the page', { error: String(error) }))
  await page.goto(`${address}/_utils/`)
  await signIn(page, 'root', 'secret')
  await page.locator('.frame').waitFor()
  return page
}

t.test('the console loads nothing that a database stores', async (t) => {
  const stage = await openStage(t)
  await stage.call('PUT', '/db')
  await put(stage, 'evil.js', 'text/javascript', 'self.evil = true')
  await put(stage, 'evil.css', 'text/css', 'body { display: none }')
  await put(stage, 'evil.html', 'text/html', '<script>parent.evil = true</script>')

  await t.test('its scripts are named by their digests', async (t) => {
    const answer = await fetch(`${stage.server.url}/_utils/`)
    const scripts = [...(await answer.text()).matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)]
    const digests = scripts.map(([, , text = '']) => createHash('sha256').update(text).digest('base64'))
    t.equal(scripts.length, 1)
    t.strictSame(
      scripts.map(([, attributes]) => attributes),
      [' data-cfasync="false"'],
    )
    const policy = answer.headers.get('content-security-policy') ?? ''
    const [, sources = ''] = /(?:^|; )script-src ([^;]*)/.exec(policy) ?? []
    t.strictSame(
      sources.split(' ').sort(),
      [...digests.map((digest) => `'sha256-${digest}'`), "'strict-dynamic'"].sort(),
    )
    t.match(policy, /frame-ancestors 'none'/)
    t.match(policy, /base-uri 'none'/)
    t.match(policy, /form-action 'none'/)
    t.match(policy, /worker-src 'none'/)
    t.equal(answer.headers.get('x-content-type-options'), 'nosniff')
    const minimal = await fetch(`${stage.server.url}/_utils/`, { headers: { prefer: 'return=minimal' } })
    t.equal(minimal.headers.get('content-security-policy'), policy)
  })

  for (const [where, address] of [
    ['at its own address', stage.server.url],
    ['behind a prefix', await prefixed(t, stage.server.url, '/couch')],
    ['behind a prefix with special characters', await prefixed(t, stage.server.url, "/a;b,c'd/e%20f")],
    ['at an IPv6 address', await prefixed(t, stage.server.url, '/couch', '::1')],
  ] as const) {
    await t.test(where, async (t) => {
      const page = await signedIn(t, stage, address)
      await page.goto(`${address}/_utils/#/databases/db`)
      await page.getByRole('heading', { name: 'db', exact: true }).waitFor()
      for (const [what, attempt] of Object.entries(ATTEMPTS)) {
        // WebKit could not be told which styles are the page's own.
        if (what === 'style sheet' && address.includes('[')) continue
        t.equal(await page.evaluate(attempt), 'blocked', what)
      }
      t.equal(await page.evaluate('window.evil'), undefined)
    })
  }

  await t.test('it is nowhere but below /_utils', async (t) => {
    await stage.call('PUT', '/_node/_local/_config/chttpd/secure_rewrites', 'false')
    const rewrites = `function (req) {
      var to = req.path.slice(4).join("/")
      return to === "" ? "../../../_utils/" : { code: 200, headers: { "Content-Type": "text/javascript" }, body: "self.evil = true" }
    }`
    await stage.call('PUT', '/db/_design/app', { rewrites })
    const page = await signedIn(t, stage, stage.server.url)
    const answer = await page.goto(`${stage.server.url}/db/_design/app/_rewrite/`)
    t.equal(answer?.status(), 404)
    t.equal(await page.evaluate('window.evil'), undefined)
  })
})
