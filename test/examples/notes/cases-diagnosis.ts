/** Each way in which a sync can be impossible has its own words. */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { freePort } from '../../cli/child.ts'
import { makeCertificate } from '../../helpers/certificates.ts'
import { until } from '../../helpers/until.ts'
import type { Device } from './device.ts'
import { ADMIN, startServer } from './servers.ts'
import type { Stage } from './stage.ts'

async function listen(t: Test, server: ReturnType<typeof createServer>): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/** What a proxy does that collects the whole answer: a feed that never ends never comes. */
function bufferingProxy(target: string): RequestListener {
  return (request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const headers = Object.fromEntries(
        Object.entries(request.headers).filter(([name]) => !['connection', 'content-length'].includes(name)),
      ) as Record<string, string>
      const gone = new AbortController()
      response.on('close', () => gone.abort())
      const body = chunks.length > 0 ? { body: Buffer.concat(chunks) } : {}
      fetch(target + request.url, { method: request.method ?? 'GET', headers, ...body, signal: gone.signal })
        .then(async (answer) => {
          const bytes = Buffer.from(await answer.arrayBuffer())
          const kept = [...answer.headers].filter(
            ([name]) => !/^(?:content-(?:length|encoding)|transfer-|connection)/.test(name),
          )
          response.writeHead(answer.status, Object.fromEntries(kept)).end(bytes)
        })
        .catch(() => response.destroy())
    })
  }
}

/** Writes an Address and asks for the diagnosis. @returns the finding's text */
async function examine(device: Device, address: string, code: string): Promise<string> {
  await device.choose('Advanced')
  await device.page.getByLabel('ADDRESS', { exact: true }).fill(address)
  await device.page.getByRole('button', { name: 'Network diagnosis' }).click()
  return device.finding(code)
}

export async function diagnosis(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  const address = await stage.database('examined')
  const { port } = new URL(address)
  const closed = await freePort()
  const { cert, key } = await makeCertificate()
  const [strict, untrusted, plain] = await Promise.all([
    startServer(t, '', 'single'),
    listen(
      t,
      createTlsServer({ cert, key }, (_request, response) => response.end('{}')),
    ),
    listen(
      t,
      createServer((_request, response) => response.end('hello')),
    ),
  ])
  const slow = await listen(t, createServer(bufferingProxy(stage.server.url)))
  await stage.server.addAccount('eve')

  const cases: readonly (readonly [code: string, address: string, ...says: RegExp[]])[] = [
    ['address', `http://anna:anna@127.0.0.1/examined`, /port/i],
    ['refused', `http://127.0.0.1:${closed}/examined`, /No server answers at 127\.0\.0\.1/, /doctor http:/],
    [
      'unreachable',
      `https://anna:anna@127.0.0.1:${untrusted}/examined`,
      /certificate/,
      /cannot find out which/,
      /doctor https:/,
    ],
    [
      'unreachable',
      `https://no-such-host.invalid:6984/examined`,
      /does not exist/,
      /certificate/,
      /doctor https:/,
    ],
    [
      'cors',
      `${strict.url.replace('://', '://root:secret@')}/examined`,
      /CORS/,
      /cors\/origins/,
      new RegExp(stage.origin),
    ],
    ['cors', `http://127.0.0.1:${plain}/examined`, /CORS/],
    ['credentials', `http://eve:wrong@127.0.0.1:${port}/examined`, /401/, /in the Address is incorrect/],
    ['credentials', `http://127.0.0.1:${port}/examined`, /401/, /no name and password/],
    ['rights', `http://eve:eve@127.0.0.1:${port}/examined`, /403/, /eve/, /_security/],
    ['no_database', `http://root:secret@127.0.0.1:${port}/nothing`, /404/, /-X PUT http/],
    [
      'buffered_feed',
      `http://anna:anna@127.0.0.1:${slow}/examined`,
      /buffers/,
      /proxy_buffering off/,
      /doctor/,
    ],
  ]
  for (const [code, text, ...says] of cases) {
    const shown = await examine(device, text, code)
    for (const each of says) t.match(shown, each, `${code}: ${each}`)
    t.notMatch(shown, /anna:anna|root:secret|wrong/, `${code}: no credentials`)
  }

  const late = await listen(
    t,
    createServer(() => undefined),
  )
  await device.page.getByLabel('ADDRESS', { exact: true }).fill(`http://127.0.0.1:${late}/examined`)
  await device.page.getByRole('button', { name: 'Network diagnosis' }).click()
  await device.page.getByText('Checking the network').waitFor()
  await device.page.getByLabel('ADDRESS', { exact: true }).fill(address)
  await device.page.getByText('Checking the network').waitFor({ state: 'detached' })
  t.equal(await device.page.locator('.diagnosis').count(), 0, 'the diagnosis of another address is not shown')

  await device.page.getByLabel('Mobile device').check()
  t.match(await examine(device, address, 'address'), /TLS|https/, 'a mobile device demands TLS')
  await device.page.getByRole('button', { name: 'Apply' }).click()
  t.match(await device.finding('address'), /TLS|https/)
  t.match(
    await device.page.locator('.status-line').innerText(),
    /No Address yet/,
    'the address is not applied',
  )
  await device.page.getByLabel('Mobile device').uncheck()

  await device.page.getByLabel('ADDRESS', { exact: true }).fill(address)
  await device.page.getByRole('button', { name: 'Network diagnosis' }).click()
  await device.page.getByText('Everything works').waitFor()
  t.same(await device.page.locator('.checks .is-wrong').count(), 0)
  const strange = device.sent.filter(({ url }) => !/^\/(?:(?:examined|nothing)(?:\/|$)|$)/.test(url.pathname))
  t.same(strange, [], 'only / and the database are asked')
}

/** A sync that stops by itself says why, without being asked. */
export async function failingSync(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  const address = await stage.database('failing')
  await device.preferences('logging')
  await device.page.getByLabel('Main process logging').check()
  await device.apply(address.replace('anna:anna@', 'anna:secret-of-nobody@'))
  t.match(await device.finding('credentials'), /401/)
  await device.status('Stopped')

  await device.apply(address.replace('/failing', '/missing'))
  await device.finding('no_database')
  await device.status('There is no such database')
  const command = await device.page.locator('.command code').innerText()
  // As an admin would paste it, who is asked for the password.
  spawnSync('sh', ['-c', command.replaceAll('curl -u admin', `curl -sS -u ${ADMIN}`)])
  await device.status('Up to date')
  t.ok(await device.page.locator('.status-line').isVisible(), 'the command lets the account in')

  await device.apply(address)
  await device.write('After it was mended', 'text')
  await device.status('Up to date')
  await device.page.locator('.status-line', { hasText: /[12] sent/ }).waitFor()
  const field = device.page.getByLabel('ADDRESS', { exact: true })
  t.notMatch(await field.inputValue(), /anna:anna/, 'the password is hidden')
  await device.page.getByRole('button', { name: 'Show password' }).click()
  t.equal(await field.inputValue(), address)

  await device.preferences('logging')
  const events = device.page.locator('.events li')
  await events.getByText('documents sent 1').first().waitFor()
  t.ok((await events.filter({ hasText: '401' }).count()) > 0, 'the failure is on record')
  const [download] = await Promise.all([
    device.page.waitForEvent('download'),
    device.page.getByRole('button', { name: 'Save as a file' }).click(),
  ])
  const chunks: Buffer[] = []
  for await (const chunk of await download.createReadStream()) chunks.push(chunk as Buffer)
  const text = Buffer.concat(chunks).toString()
  t.match(text, /^time\tmode\tdirection\tevent\tdocuments\terror\n/)
  t.match(text, /\tadvanced\tpush\tdocuments\t1\t\n/)
  t.match(text, /\terror\t0\t.*401/)
  t.notMatch(text, /secret-of-nobody|anna/)

  await device.page.reload()
  await events.getByText('documents sent 1').first().waitFor()
  await device.page.getByLabel('Main process logging').uncheck()
  await events.first().waitFor({ state: 'detached' })
  await device.write('Not noted', 'text')
  await device.preferences('logging')
  t.equal(await device.page.evaluate("localStorage.getItem('notes.log')"), null, 'off, nothing is kept')
}

/** All that is kept can be seen. */
export async function longLog(t: Test, stage: Stage): Promise<void> {
  const device = await stage.device(t)
  const { page } = device
  const count = 1201
  await page.evaluate(`(() => {
    const event = { time: 0, mode: 'advanced', direction: 'push', act: 'documents', docs: 1, error: null }
    const events = Array.from({ length: ${count} }, (_, at) => ({ ...event, time: at * 1000, docs: at }))
    localStorage.setItem('notes.settings', JSON.stringify({ mode: 'off', isLogging: true }))
    localStorage.setItem('notes.log', JSON.stringify(events))
  })()`)
  await page.goto(`${device.origin}/#/preferences/logging`)
  await page.reload()
  const rows = page.locator('.events li')
  await page.getByText('showing the last 500').waitFor()
  for (const shown of [500, 1000, count]) {
    await until(`${shown} are shown`, async () => (await rows.count()) === shown)
    if (shown < count) await page.getByRole('button', { name: 'Show older events' }).click()
  }
  t.equal(await page.getByRole('button', { name: 'Show older events' }).count(), 0)
}
