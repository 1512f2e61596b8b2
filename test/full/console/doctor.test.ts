/** The doctor in the page: through a proxy with faults, cancelled, and for an account without a database. */
import { createServer, request as send } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { look, openStage, type Stage, settled, signIn } from '../../console/stage.ts'

t.setTimeout(300_000)

/** What a badly configured proxy does. */
interface Faults {
  /** Refuses longer bodies, in bytes. */
  readonly maxBody?: number
  readonly losesAuthorization?: boolean
  /** Sends a feed only when it is complete. */
  readonly buffersFeeds?: boolean
}

/** @returns the address of a proxy before the server */
async function startProxy(t: Test, { server }: Stage, faults: Faults): Promise<string> {
  const target = new URL(server.url)
  const proxy = createServer((asked, answer) => {
    if (Number(asked.headers['content-length'] ?? 0) > (faults.maxBody ?? Number.POSITIVE_INFINITY)) {
      asked.resume()
      asked.on('end', () => answer.writeHead(413, { server: 'nginx' }).end('<h1>413</h1>'))
      return
    }
    const { authorization, ...others } = asked.headers
    const headers = faults.losesAuthorization ? others : asked.headers
    const passed = send({
      host: target.hostname,
      port: target.port,
      method: asked.method,
      path: asked.url,
      headers,
    })
    passed.on('response', (got) => {
      const held = faults.buffersFeeds && /feed=/.test(asked.url ?? '')
      answer.writeHead(got.statusCode ?? 500, { ...got.headers, server: 'nginx' })
      if (held) got.resume()
      else got.pipe(answer)
    })
    passed.on('error', () => answer.destroy())
    answer.on('close', () => passed.destroy())
    asked.pipe(passed)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    proxy.closeAllConnections()
    proxy.close()
  })
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
}

/** Whether the doctor has removed everything. */
async function leftovers(stage: Stage): Promise<number> {
  const { json: list } = await stage.call('GET', '/_settee/tokens?account=root')
  const { json: local } = await stage.call('GET', '/notes/_local_docs')
  return list.tokens.length + local.rows.length
}

t.test('the doctor in the page', async (t) => {
  const stage = await openStage(t)
  await stage.call('PUT', '/notes')

  await t.test('a server without faults, by the keyboard', async (t) => {
    const page = await stage.signedIn(t, { hash: '#/doctor' })
    await settled(page)
    await look(t, page, 'doctor')
    await page.getByRole('button', { name: 'Run the checks' }).focus()
    await page.keyboard.press('Enter')
    await page.getByText('Nothing is wrong').waitFor()
    t.equal(await page.locator('.finding').count(), 15)
    t.equal(await page.locator('.finding.is-bad').count(), 0)
    t.equal(
      await page.getByLabel('Command', { exact: true }).inputValue(),
      `settee doctor ${stage.server.url.replace('//', '//USER:PASSWORD@')}/notes`,
    )
    await look(t, page, 'doctor-fine')
    t.equal(await leftovers(stage), 0, 'it leaves nothing behind')
    t.equal((await stage.call('GET', '/notes')).json.doc_count, 0)
  })

  await t.test('a proxy with faults', async (t) => {
    const faults = { maxBody: 2_000_000, losesAuthorization: true, buffersFeeds: true }
    const address = await startProxy(t, stage, faults)
    const page = await stage.open(t)
    await page.goto(`${address}/_utils/#/doctor`)
    await signIn(page, 'root', 'secret')
    await page.getByRole('button', { name: 'Run the checks' }).click()
    await page.getByText('3 faults').waitFor()
    const wrong = page.locator('.finding.is-bad')
    t.match(await wrong.nth(0).innerText(), /App passwords.*nginx\s+proxy_set_header Authorization/s)
    t.match(await wrong.nth(1).innerText(), /Changes feed.*proxy_buffering off/s)
    t.match(await wrong.nth(2).innerText(), /Large bodies.*10 MB.*client_max_body_size 0/s)
    await look(t, page, 'doctor-faults')
    t.equal(await leftovers(stage), 0)
  })

  await t.test('a run that is cancelled, and a server that stops', async (t) => {
    const page = await stage.signedIn(t, { hash: '#/doctor' })
    await page.getByRole('button', { name: 'Run the checks' }).click()
    await page.getByText('Checking: Changes feed').waitFor()
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByText('The checks were stopped.').waitFor()
    t.equal(await leftovers(stage), 0)
    await page.route(/\/(?!_utils)/, (route) => route.abort())
    await page.getByRole('button', { name: 'Run again' }).click()
    await page.getByText('The server does not answer').waitFor()
    t.ok(await page.getByRole('button', { name: 'Run again' }).isEnabled())
  })
})
