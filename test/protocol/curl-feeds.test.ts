/** Feeds that somebody opened before a database was secured. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { cleanEnv } from '../cli/child.ts'
import { startTestServer } from '../helpers/server.ts'
import { atPort, sh } from './curl-shell.ts'

/** Longer than anything here takes but for a feed that does not end; in milliseconds. */
const HEARTBEAT = 20_000

interface OpenFeed {
  /** What has arrived so far. */
  text(): string
  /** Resolves with curl's exit code: 0 where the server has ended the answer as it should. */
  readonly ended: Promise<unknown>
}

/** Runs `curl -N` in a shell, and waits for the feed's first row. */
async function openFeed(t: Test, port: number, kind: string): Promise<OpenFeed> {
  const address = `http://127.0.0.1:5984/my-notes/_changes?feed=${kind}&heartbeat=${HEARTBEAT}`
  const command = atPort(`exec curl -s -N --max-time 60 '${address}'`, port)
  const child = spawn('sh', ['-c', command], { env: cleanEnv(), stdio: ['ignore', 'pipe', 'ignore'] })
  t.teardown(() => child.kill('SIGKILL'))
  let text = ''
  const ended = once(child, 'close').then(([code]) => code)
  const arrived = new Promise<void>((resolve, reject) => {
    child.stdout.setEncoding('utf8').on('data', (more: string) => {
      text += more
      if (text.includes('note:1')) resolve()
    })
    ended.then(() => reject(new Error(`The feed ended at once: ${text}`)), reject)
  })
  await arrived
  return { text: () => text, ended }
}

async function openServer(t: Test): Promise<number> {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  await sh('curl -X PUT http://127.0.0.1:5984/my-notes', port)
  await sh(`curl -X PUT http://127.0.0.1:5984/my-notes/note:1 -d '{}'`, port)
  return port
}

/** Runs commands, and expects the feeds to end without a word of what the second one has written. */
async function endAfter(
  t: Test,
  port: number,
  feeds: OpenFeed[],
  commands: readonly string[],
): Promise<void> {
  const since = performance.now()
  for (const command of commands) t.match(await sh(command, port), { status: /^20[01]$/ }, command)
  for (const feed of feeds) {
    t.equal(await feed.ended, 0, 'the feed has ended as it should')
    t.notMatch(feed.text(), 'note:2', 'nothing was told that was written afterwards')
  }
  t.ok(performance.now() - since < HEARTBEAT, 'within one heartbeat')
}

const MAKE_ADMIN = `curl -X PUT http://127.0.0.1:5984/_config/admins/anna -d '"secret"'`
const WRITE = `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/note:2 -d '{}'`
const CLOSE = `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/_security -d '{"admins":{"names":["anna"]}}'`
const OPEN = `curl -X PUT http://127.0.0.1:5984/my-notes/_security -d '{"members":{"names":[]}}'`

for (const [when, after] of [
  ['and nobody writes', []],
  ['and somebody writes', [WRITE]],
] as const) {
  t.test(`open feeds end within one heartbeat when the first admin is made ${when}`, async (t) => {
    const port = await openServer(t)
    const feeds = await Promise.all(['continuous', 'eventsource'].map((kind) => openFeed(t, port, kind)))
    await endAfter(t, port, feeds, [MAKE_ADMIN, ...after])
  })

  t.test(`open feeds of a public database end within one heartbeat when it is closed ${when}`, async (t) => {
    const port = await openServer(t)
    for (const command of [OPEN, MAKE_ADMIN]) await sh(command, port)
    const feeds = await Promise.all(['continuous', 'eventsource'].map((kind) => openFeed(t, port, kind)))
    await endAfter(t, port, feeds, [CLOSE, ...after])
  })
}

t.test('feeds of a database that stays public go on when the first admin is made', async (t) => {
  const port = await openServer(t)
  await sh(OPEN, port)
  const feed = await openFeed(t, port, 'continuous&limit=2')
  await sh(MAKE_ADMIN, port)
  await sh(`curl -X PUT http://127.0.0.1:5984/my-notes/note:2 -d '{}'`, port)
  t.equal(await feed.ended, 0)
  t.match(feed.text(), 'note:2')
})
