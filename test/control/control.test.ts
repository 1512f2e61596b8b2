import { chmod, mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ControlCommands } from '../../src/control/control-commands.ts'
import { serveControl } from '../../src/control/control-server.ts'
import { controlPath, reachServer } from '../../src/control/control-socket.ts'
import { CouchError } from '../../src/core/errors.ts'
import { temporaryFolder } from '../helpers/server.ts'

/** Answers each call with its argument. */
const ECHO = {
  setPassword: async (argument: object) => argument,
  addAccount: async (argument: object) => argument,
  listAccounts: async (argument: object) => argument,
  deleteAccount: async (argument: object) => argument,
  listSizes: async (argument: object) => argument,
  backUp: async (argument: object) => argument,
} as unknown as ControlCommands

async function setUp(t: Test, controls: Partial<ControlCommands> = {}, folder?: string) {
  const dataDir = folder ?? (await temporaryFolder(t))
  const said: unknown[] = []
  const say = (...words: unknown[]) => void said.push(words)
  const logger = { info: say, warn: say, error: say }
  const close = await serveControl({ dataDir, controls: { ...ECHO, ...controls }, logger } as never)
  t.teardown(close)
  const reach = async () => {
    const reached = await reachServer(dataDir)
    if (reached === null) throw new Error('nobody is there')
    return reached
  }
  return { dataDir, close, said, reach }
}

/** The socket's answer to a text. */
async function raw(dataDir: string, text: string | Buffer): Promise<string> {
  const socket = createConnection({ path: controlPath(dataDir), allowHalfOpen: true })
  socket.on('error', () => undefined)
  socket.end(text)
  let answer = ''
  for await (const chunk of socket.setEncoding('utf8')) answer += chunk
  return answer
}

t.test('calls and their results cross the socket', async (t) => {
  const { reach, said } = await setUp(t)
  const operator = await reach()
  const change = { name: 'änna', password: 'Geheim "1"\\', create: false }
  t.strictSame((await operator.setPassword(change)) as unknown, change)
  t.strictSame((await operator.listAccounts({ after: null })) as unknown, { after: null })
  t.strictSame((await operator.deleteAccount({ name: 'x' })) as unknown, { name: 'x' })
  const many = Array.from({ length: 12 }, (_, at) => operator.deleteAccount({ name: `${at}` }))
  t.equal((await Promise.all(many)).length, 12)
  t.notMatch(JSON.stringify(said), 'Geheim')
  t.match(said[0], [{ act: 'setPassword', account: 'änna' }, String])
})

t.test('refusals and faults', async (t) => {
  const refused = new CouchError('conflict', 'There is one already.')
  const fault = new Error('the thread has died')
  const { reach, said } = await setUp(t, {
    addAccount: async () => {
      throw refused
    },
    deleteAccount: async () => {
      throw fault
    },
  })
  const operator = await reach()
  const account = { name: 'x', password: 'x', roles: [] }
  await t.rejects(operator.addAccount(account), { code: 'conflict', message: 'There is one already.' })
  t.strictSame(said, [], 'a refusal is no news')
  await t.rejects(operator.deleteAccount({ name: 'x' }), { code: 'internal_server_error' })
  t.match(said, [[{ err: fault }, String]])
})

t.test('progress arrives before the result', async (t) => {
  const work = async (argument: object, tell: (progress: object) => void) => {
    tell({ done: 1, total: 2 })
    return argument
  }
  const { reach } = await setUp(t, { listAccounts: work as never })
  const told: object[] = []
  const ask = (await reach()).listAccounts as unknown as typeof work
  t.strictSame(await ask({ after: 'x' }, (progress) => told.push(progress)), { after: 'x' })
  t.strictSame(told, [{ done: 1, total: 2 }])
})

t.test('a command learns that its caller has disconnected', async (t) => {
  let leave: () => void = () => undefined
  const left = new Promise<void>((resolve) => {
    leave = resolve
  })
  const work = async (_argument: object, tell: (progress: object) => void, gone: AbortSignal) => {
    while (!gone.aborted) {
      tell({ done: 1 })
      await delay(5)
    }
    leave()
  }
  const { dataDir } = await setUp(t, { backUp: work as never })
  const socket = createConnection({ path: controlPath(dataDir), allowHalfOpen: true })
  socket.end(`${JSON.stringify({ act: 'backUp', argument: {} })}\n`)
  socket.once('data', () => socket.destroy())
  await left
})

t.test('other users cannot open the socket', async (t) => {
  const dataDir = await temporaryFolder(t)
  await mkdir(join(dataDir, 'control'), { mode: 0o777 })
  await chmod(join(dataDir, 'control'), 0o777)
  await setUp(t, {}, dataDir)
  t.equal((await stat(join(dataDir, 'control'))).mode & 0o777, 0o700)
})

t.test('an invalid call is refused', async (t) => {
  const { dataDir, reach } = await setUp(t)
  t.equal(await raw(dataDir, ''), '', 'a connection without a call gets no answer')
  for (const text of ['{', 'null', '[]', '{}', '{"act":"setPassword"}', '{"act":"toString","argument":{}}']) {
    t.match(JSON.parse(await raw(dataDir, `${text}\n`)), { error: { code: 'bad_request' } }, text)
  }
  t.match(JSON.parse(await raw(dataDir, '{"act":"setPassword","argument":null}')), { error: {} })
  await t.rejects(raw(dataDir, Buffer.alloc(10_000_000, 'x')), 'is cut')
  t.ok(await (await reach()).deleteAccount({ name: 'x' }), 'other connections are answered')
})

t.test('the socket of a dead server is replaced', async (t) => {
  const dataDir = await temporaryFolder(t)
  t.equal(await reachServer(dataDir), null)
  t.equal(await reachServer(join(dataDir, 'nowhere')), null)
  await mkdir(join(dataDir, 'control'))
  await writeFile(controlPath(dataDir), '')
  t.equal(await reachServer(dataDir), null)
  const { close, reach } = await setUp(t, {}, dataDir)
  await reach()
  await close()
  t.equal(await reachServer(dataDir), null)
})

t.test('a server that cannot create the socket logs that, and runs', async (t) => {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'control'), 'a file')
  const { said, close } = await setUp(t, {}, dataDir)
  t.match(said, [[{ reason: /EEXIST/ }, /cannot reach this server/]])
  await close()
  t.equal(await readFile(join(dataDir, 'control'), 'utf8'), 'a file')

  const long = join(await temporaryFolder(t), 'x'.repeat(100))
  await mkdir(long)
  t.match((await setUp(t, {}, long)).said, [[{ reason: /too long for a socket address/ }, String]])
  t.equal(await reachServer(long), null)
})

t.test('closing answers the calls under way, and disconnects silent clients', async (t) => {
  let letGo = () => {}
  const waits = new Promise<void>((resolve) => {
    letGo = resolve
  })
  let begun = () => {}
  const hasBegun = new Promise<void>((resolve) => {
    begun = resolve
  })
  const { dataDir, close, reach } = await setUp(t, {
    deleteAccount: async () => {
      begun()
      await waits
      return { deleted: [], warning: null }
    },
  })
  const called = (await reach()).deleteAccount({ name: 'x' })
  const silent = createConnection(controlPath(dataDir))
  silent.on('error', () => undefined).resume()
  await hasBegun
  const closed = close()
  letGo()
  t.strictSame(await called, { deleted: [], warning: null })
  await closed
})
