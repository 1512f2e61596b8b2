/** Strangers who send without end, and an account that connects from the same network. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { until } from '../helpers/until.ts'
import { startMemoryServer } from './memory-server.ts'

const CONNECTIONS = 8
const basic = (login: string) => `Authorization: Basic ${Buffer.from(login).toString('base64')}`
const get = (path: string, header = 'X: y') => `GET ${path} HTTP/1.1\r\nHost: a\r\n${header}\r\n\r\n`

/** What each connection of a flood sends again and again; it is opened anew when it is closed. */
const FLOODS = {
  'without credentials': get('/_up'),
  'with a wrong password': get('/_session', basic('nobody:wrong')),
  'with a wrong cookie': get('/_session', 'Cookie: AuthSession=YTpiOmM'),
  'of refused heads': get(`/${'x'.repeat(40_000)}`),
}

t.setTimeout(900_000)

for (const [name, request] of Object.entries(FLOODS)) {
  t.test(`a flood ${name}: an account of the same network is served meanwhile`, async (t) => {
    const { config, app, port, url } = await startMemoryServer(t, { 'settee/stranger_requests': '100' })
    await setAdmin(config, 'anna', 'secret')
    const login = await fetch(`${url}/_session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'anna', password: 'secret' }),
    })
    const cookie = `Cookie: ${(login.headers.get('set-cookie') ?? '').split(';', 1)[0]}`
    let seen = 0
    app.server.prependListener('request', () => {
      seen += 1
    })
    const end = startFlood(t, port, request)
    t.teardown(end)
    await until(() => seen > 0 || app.requestTally.invalid > 0)
    await sleep(300)
    for (const header of [basic('anna:secret'), cookie]) {
      const client = open(t, port)
      t.match(await client.ask(get('/_all_dbs', header)), /^HTTP\/1.1 200/, header.slice(0, 15))
      const write = `PUT /x HTTP/1.1\r\nHost: a\r\n${header}\r\nContent-Length: 2\r\n\r\n{}`
      t.match(await client.ask(write), /^HTTP\/1.1 (?:201|412)/, 'with a body')
    }
    const page = open(t, port)
    t.match(await page.ask('OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n'), /^HTTP/)
    t.match(await page.ask(get('/x', basic('anna:secret'))), /^HTTP\/1.1 200/, 'after a preflight')
  })
}

function open(t: Test, port: number) {
  const socket = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' })
  socket.on('error', () => undefined)
  t.teardown(() => socket.destroy())
  const ask = async (request: string) => {
    socket.write(request)
    const [answer] = (await once(socket, 'data')) as [Buffer]
    return answer.toString()
  }
  return { socket, ask }
}

/** @returns a function that ends the flood */
function startFlood(t: Test, port: number, request: string): () => void {
  const bytes = request.repeat(Math.ceil(20_000 / request.length))
  let isOver = false
  const one = () => {
    const { socket } = open(t, port)
    const write = (): void => {
      while (!isOver && !socket.destroyed && socket.write(bytes)) {
        // Until the socket asks to wait for `drain`.
      }
    }
    socket.on('connect', write).on('drain', write).resume()
    socket.on('close', () => isOver || setTimeout(one, 5))
  }
  for (let at = 0; at < CONNECTIONS; at += 1) one()
  return () => {
    isOver = true
  }
}
