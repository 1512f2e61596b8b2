/** Behind the files of deploy/, a client of a trusted range cannot choose its address: its wrong passwords are locked out. */
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { freePort } from '../../cli/child.ts'
import { look } from '../../doctor/looking.ts'
import { certificateFiles } from '../../helpers/certificates.ts'
import { startNginx } from '../../helpers/nginx.ts'
import { type Balancer, caddyOver, nginxOver, runCaddy } from '../../helpers/node-balancers.ts'
import { startTestServer } from '../../helpers/server.ts'

const CADDY = new URL('../../../deploy/Caddyfile', import.meta.url)
/** As in compose.yaml: the range of the proxy has clients in it. */
const RANGE = 'loopback, uniquelocal'
const GUESSES = 14

async function caddy(t: Test, url: string): Promise<Balancer> {
  const [port, tls] = [await freePort(), await certificateFiles(t)]
  await runCaddy(t, port, {
    file: CADDY,
    edit: (text) => text.replace('\treverse_proxy', `\ttls ${tls.certFile} ${tls.keyFile}\n\treverse_proxy`),
    env: { SETTEE_UPSTREAM: url.replace('http://', '') },
  })
  return { url: `https://127.0.0.1:${port}`, ca: tls.cert }
}

const APPENDING = (text: string) => text.replace('$remote_addr', '$proxy_add_x_forwarded_for')

const PROXIES: Readonly<Record<string, (t: Test, url: string) => Promise<Balancer>>> = {
  'nginx.conf': (t, upstream) => startNginx(t, { upstream }),
  'nodes-nginx.conf': (t, url) => nginxOver(t, [url]),
  Caddyfile: caddy,
  'nodes.Caddyfile': (t, url) => caddyOver(t, [url]),
  'nginx.conf that appends': (t, upstream) => startNginx(t, { upstream, edit: APPENDING }),
}

for (const [name, start] of Object.entries(PROXIES)) {
  t.test(`behind ${name}`, async (t) => {
    const server = await startTestServer(t, { env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' } })
    const auth = 'anna:secret'
    await server.request('PUT', '/_node/_local/_config/settee/trusted_proxies', {
      auth,
      body: JSON.stringify(RANGE),
    })
    await server.request('PUT', '/notes', { auth })
    const proxy = await start(t, server.url)
    const isForgeable = name.endsWith('that appends')

    const address = `${proxy.url.replace('//', `//${auth}@`)}/notes`
    const looked = await look(address, { ca: proxy.ca, limits: { bodies: [] } })
    t.match(
      looked.one('client'),
      isForgeable ? { state: 'wrong', text: /believes an X-Forwarded-For/ } : { state: 'fine' },
    )
    if (isForgeable)
      t.match(looked.cures('client').join('\n'), /nginx: proxy_set_header X-Forwarded-For \$remote_addr;/)

    const dispatcher = new Agent({ connect: { ca: proxy.ca }, localAddress: '127.0.0.2' })
    t.teardown(() => dispatcher.destroy())
    const statuses = new Set<number>()
    for (let guess = 0; guess < GUESSES; guess++) {
      const headers = {
        authorization: `Basic ${btoa(`anna:${guess}`)}`,
        'x-forwarded-for': `203.0.113.${guess}`,
        'x-forwarded-host': 'forged.example',
      }
      const { statusCode, body } = await request(`${proxy.url}/_session`, { dispatcher, headers })
      await body.dump()
      statuses.add(statusCode)
    }
    t.equal(statuses.has(403), !isForgeable, 'the guesses are locked out')
    const headers = { authorization: `Basic ${btoa(auth)}`, 'x-forwarded-host': 'forged.example' }
    const other = new Agent({ connect: { ca: proxy.ca }, localAddress: '127.0.0.3' })
    t.teardown(() => other.destroy())
    const made = await request(`${proxy.url}/notes/a`, {
      method: 'PUT',
      body: '{}',
      dispatcher: other,
      headers,
    })
    await made.body.dump()
    t.match(made, { statusCode: 201, headers: { location: `${proxy.url}/notes/a` } })
  })
}
