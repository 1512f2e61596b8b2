/** settee below a path of a site, with the lines of docs/proxy.md in real proxies. */
import { readFile } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { freePort } from '../../cli/child.ts'
import { look, onlyWrong } from '../../doctor/looking.ts'
import { certificateFiles } from '../../helpers/certificates.ts'
import { startNginx } from '../../helpers/nginx.ts'
import { type Balancer, runCaddy } from '../../helpers/node-balancers.ts'
import { startTestServer } from '../../helpers/server.ts'
import { device, liveSync } from '../../protocol/devices.ts'
import { editInTurns, overHttp1, secureRemote } from '../../proxy/secure-devices.ts'

const CADDY = new URL('../../../deploy/Caddyfile', import.meta.url)
const LOGIN = 'anna:secret'

async function nginxBelow(t: Test, upstream: string): Promise<Balancer> {
  const page = await readFile(new URL('../../../docs/proxy.md', import.meta.url), 'utf8')
  const [lines = ''] = / *location \/obsidian\/ \{.*?\n {4}\}\n/s.exec(page) ?? []
  const site = `    location / {\n        return 200 "another page";\n    }\n${lines}`
  return startNginx(t, {
    upstream,
    edit: (text) => text.replace(/ *location \/ \{.*\n {4}\}\n/s, () => site),
  })
}

async function caddyBelow(t: Test, upstream: string): Promise<Balancer> {
  const [port, tls] = [await freePort(), await certificateFiles(t)]
  await runCaddy(t, port, {
    file: CADDY,
    edit: (text) =>
      text
        .replace(
          '\treverse_proxy',
          `\ttls ${tls.certFile} ${tls.keyFile}\n\thandle_path /obsidian/* {\n\treverse_proxy`,
        )
        .replace(/\n\}\n$/, '\n\t}\n\trespond "another page"\n}\n'),
    env: { SETTEE_UPSTREAM: upstream.replace('http://', '') },
  })
  return { url: `https://127.0.0.1:${port}`, ca: tls.cert }
}

for (const [name, start] of Object.entries({ nginx: nginxBelow, Caddy: caddyBelow })) {
  t.test(`below a path of ${name}, devices sync, and the doctor finds nothing wrong`, async (t) => {
    const server = await startTestServer(t, { env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' } })
    const key = '/_node/_local/_config/settee/trusted_proxies'
    await server.request('PUT', key, { auth: LOGIN, body: '"127.0.0.1"' })
    await server.request('PUT', '/notes', { auth: LOGIN })
    const proxy = await start(t, server.url)
    const address = `${proxy.url.replace('//', `//${LOGIN}@`)}/obsidian/notes`

    const looked = await look(address, { ca: proxy.ca, limits: { heartbeatMs: 1000 } })
    onlyWrong(t, looked)
    for (const found of ['address', 'paths', 'feed', 'bodies'] as const)
      t.equal(looked.one(found).state, 'fine', `${found}: ${looked.one(found).text}`)
    const elsewhere = await look(address.replace('/obsidian', '/other'), { ca: proxy.ca })
    t.match(elsewhere.one('server'), {
      state: 'wrong',
      text: /^This is not a CouchDB: GET \/other\/ answers 200/,
    })

    const devices = [await device(t), await device(t)] as const
    const syncs = devices.map((each) => {
      return liveSync(t, each, secureRemote(address, overHttp1(t, { ca: proxy.ca })))
    })
    await devices[0].put({ _id: 'folder/a note+=', text: 'x' })
    await editInTurns(devices, 0)
    for (const { errors } of syncs) t.strictSame(errors, [])
    const { status } = await server.request('GET', '/notes/folder%2Fa%20note%2B%3D', { auth: LOGIN })
    t.equal(status, 200)
  })
}
