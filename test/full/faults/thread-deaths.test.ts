/**
 * Threads of a listening server die during writes, listings, feeds, uploads and downloads: by an uncaught exception, by
 * an unhandled rejection, or silently. Requests under way get 503, or their connection breaks. No acknowledged write is
 * lost, and no answer is wrong. Feeds continue, or end so that their clients reconnect. Databases of other threads are
 * not affected. The log has each death with its stack.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Agent } from 'undici'
import { download, listings } from '../../faults/deaths/readers.ts'
import { bulks, singles, Tally, uploads, type Writer } from '../../faults/deaths/writers.ts'
import { type Kind, Reader } from '../../faults/feeds/readers.ts'
import { Client } from '../../faults/kill/client.ts'
import { type LogLine, type ServerProcess, startServerProcess } from '../../faults/server-process.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'

const ROUNDS = Number(process.env.SETTEE_DEATHS ?? 1)
/** Acknowledged writes between two deaths. */
const BETWEEN = 15
const LARGE = randomBytes(12_000_000)

t.setTimeout(120_000 + ROUNDS * 120_000)

/** A database, its writers and readers, and the answers that they got. */
class Busy {
  readonly name: string
  readonly tally = new Tally()
  readonly acknowledged = new Map<string, number>()
  readonly readers: readonly Reader[]
  readonly #client: Client
  readonly #writers: readonly Writer[]
  readonly #work: Promise<unknown>[] = []
  #isOver = false

  constructor(server: ServerProcess, client: Client, agent: Agent, name: string, query = '') {
    this.name = name
    this.#client = client
    const { tally, acknowledged } = this
    const options = { client, database: name, tally, acknowledged }
    const some = ['a', 'b', 'c'].map((each) => singles(options, `single-${each}`))
    this.#writers = [...some, bulks(options, 'bulk'), uploads(options, 'upload')]
    const url = `${server.url}/${name}`
    const kinds: readonly Kind[] = ['continuous', 'longpoll', 'eventsource']
    this.readers = kinds.map((kind) => new Reader(url, acknowledged, kind, { query }))
    const isOver = () => this.#isOver
    const lists = [`${url}/_all_docs?include_docs=true`, `${url}/_changes?${query}`]
    this.#work.push(
      ...lists.map((list) => listings({ url: list, agent, tally }, acknowledged, isOver)),
      ...this.#writers.map((writer) => this.#write(writer)),
      ...this.readers.map((reader) => reader.run()),
    )
  }

  async #write(writer: Writer): Promise<void> {
    while (!this.#isOver) await writer.step()
  }

  /** Resolves when more has been acknowledged. */
  async goesOn(): Promise<void> {
    const enough = this.tally.acknowledged + BETWEEN
    await until(`${this.name} is written to`, () => this.tally.acknowledged >= enough)
  }

  /** Ends the writers and readers, and checks the database. */
  async check(t: Test): Promise<void> {
    this.#isOver = true
    const { json } = await this.#client.get(`/${this.name}/_changes`)
    const ids: string[] = json.results.map(({ id }: { id: string }) => id)
    const hasAll = (reader: Reader) => ids.every((id) => reader.rows.has(id) || id.startsWith('_design/'))
    await until('all have read all', () => this.readers.every(hasAll))
    for (const reader of this.readers) reader.stop()
    await Promise.all(this.#work)
    for (const writer of this.#writers) await writer.check()
    t.strictSame(this.tally.faults.slice(0, 5), [], `${this.name}: nothing was lost, and nothing untrue said`)
    for (const { name, faults, connections } of this.readers) {
      t.strictSame(faults.slice(0, 5), [], `${this.name}, ${name}: ${connections} connections`)
    }
    const { acknowledged, refused, survived } = this.tally
    t.comment(
      `${this.name}: ${acknowledged} acknowledged, ${refused} refused, ${survived} of them found done`,
    )
  }

  /** Checks that no writer or reader was affected. */
  checkCalm(t: Test): void {
    t.equal(this.tally.refused, 0, `${this.name}: no request was refused`)
    const [continuous] = this.readers
    t.equal(continuous?.connections, 1, `${this.name}: its feed never ended`)
  }
}

async function started(t: Test) {
  const server = await startServerProcess(t, {
    threadEntry: new URL('../../faults/deaths/dying-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../../faults/deaths/dying-sandbox.mjs', import.meta.url),
    threads: 3,
  })
  const client = new Client(server.url)
  const agent = new Agent({ bodyTimeout: 0 })
  t.teardown(() => Promise.all([client.close(), agent.destroy()]))
  return { server, client, agent, pid: server.pid() }
}

/** The deaths in the log. */
function deathsIn(server: ServerProcess): readonly (LogLine & { readonly err: Error })[] {
  const told = server.log().filter(({ msg }) => msg.startsWith('a thread died'))
  return told as (LogLine & { readonly err: Error })[]
}

/** Checks that the log has each death with its stack, the same process has counted them, and nothing else failed. */
async function checkTold(t: Test, { server, pid }: Awaited<ReturnType<typeof started>>, messages: string[]) {
  const told = deathsIn(server)
  t.same(told.map(({ err }) => err.message).sort(), [...messages].sort(), 'each death is told of once')
  t.ok(
    told.every(({ level, err }) => level === 'error' && /\n +at /.test(err.stack ?? '')),
    'with its stack',
  )
  const { json } = await server.ask('GET', '/_up?deep=1')
  const fact = json.facts.find(({ name }: { name: string }) => name === 'threads')
  t.match(fact, { ok: false, deaths: messages.length, silent: 0 })
  t.equal(server.pid(), pid, 'the process lives')
  t.notOk(server.log().some(({ level }) => level === 'fatal'))
}

const MESSAGES = {
  throws: 'an exception that nobody catches',
  rejects: 'a rejection that nobody handles',
  exits: 'a database thread has ended',
} as const

t.test('database threads', async (t) => {
  const world = await started(t)
  const { server, client, agent } = world
  const names = ['first', 'second', 'calm']
  for (const name of names) await client.succeed('PUT', `/${name}`)
  // Each database gets a thread of its own.
  for (const name of names) {
    await client.succeed('PUT', `/${name}/large/file`, { body: LARGE, type: 'application/x-y' })
  }
  const [first, second, calm] = names.map((name) => new Busy(server, client, agent, name)) as [
    Busy,
    Busy,
    Busy,
  ]
  const messages: string[] = []
  let broken = 0
  for (let round = 0; round < ROUNDS; round++) {
    for (const how of ['throws', 'rejects', 'exits'] as const) {
      for (const busy of [second, first]) {
        const { name } = busy
        await busy.goesOn()
        const begun = await download(`${server.url}/${name}/large/file`, agent)
        // Half of the threads die while they store the document that kills them.
        const isUpload = messages.length % 2 === 1
        const path = `/${name}/${how}-${messages.length}`
        // A document alone may be read on the HTTP thread.
        const read = `${path}?revs_info=true`
        const got = isUpload
          ? await client.write('PUT', `${path}/file`, { body: LARGE, type: 'application/x-y' })
          : await client.ask('GET', read)
        t.ok(
          [isUpload ? 201 : 404, 503].includes(got.status),
          `${how}: the one that it dies of: ${got.status}`,
        )
        messages.push(MESSAGES[how])
        await until('its death is told', () => deathsIn(server).length === messages.length)
        const rest = await begun.rest()
        if (rest === 'broken') broken += 1
        else t.ok(rest.equals(LARGE), 'a download that ends in order is whole')
        if (isUpload && got.status === 503) {
          const after = await client.ask('GET', `${path}/file`)
          t.ok(after.status === 404 || after.bytes.equals(LARGE), `and is not half there: ${after.status}`)
        }
        const made = `made-after-${messages.length}`
        await client.succeed('PUT', `/${made}`)
        await client.succeed('DELETE', `/${made}`)
      }
      // The thread with the list of databases.
      t.equal(
        (await client.ask('GET', `/_users/${how}-${messages.length}`)).status in { 404: 1, 503: 1 },
        true,
      )
      messages.push(MESSAGES[how])
      await until('its death is told', () => deathsIn(server).length === messages.length)
    }
  }
  await Promise.all([first, second, calm].map((busy) => busy.goesOn()))
  for (const busy of [first, second, calm]) await busy.check(t)
  calm.checkCalm(t)
  t.ok(broken > 0, `${broken} downloads broke off`)
  t.ok(first.tally.refused > 0 && second.tally.refused > 0, 'requests were refused')
  await checkTold(t, world, messages)
})

const FUNCTIONS = {
  _id: '_design/app',
  validate_doc_update: 'function (doc) { if (doc.bad) throw({ forbidden: "bad" }) }',
  filters: { all: 'function (doc) { var n = 0; for (var name in doc) n += name.length; return n > 0 }' },
}

t.test('sandbox threads', async (t) => {
  const world = await started(t)
  const { server, client, agent } = world
  const folder = await temporaryFolder(t)
  for (const name of ['judged', 'calm']) await client.succeed('PUT', `/${name}`)
  await client.succeed('PUT', '/judged/_design/app', { body: FUNCTIONS })
  const judged = new Busy(server, client, agent, 'judged', '&filter=app/all')
  const calm = new Busy(server, client, agent, 'calm')
  let isOver = false
  const bad = async () => {
    for (let n = 0; !isOver; n++) {
      const { status } = await client.ask('PUT', `/judged/bad-${n}`, { body: { bad: true } })
      if (status !== 403 && status !== 503) judged.tally.faults.push(`what is forbidden: ${status}`)
    }
  }
  const trying = bad()
  const messages: string[] = []
  for (let n = 0; n < 2 * ROUNDS; n++) {
    const how = n % 2 === 0 ? 'throws' : 'rejects'
    const path = join(folder, `die-${n}`)
    const dead = async () => {
      messages.push(how === 'throws' ? 'an exception in a sandbox' : 'a rejection in a sandbox')
      await until('its death is told', () => deathsIn(server).length === messages.length)
    }
    await judged.goesOn()
    writeFileSync(path, '')
    const put = await client.write('PUT', `/judged/dies-${n}`, { body: { text: `dies:${how}:${path};` } })
    t.equal(put.status, 201, 'a write whose judge dies is judged by another')
    t.notOk(existsSync(path))
    await dead()
    await judged.goesOn()
    writeFileSync(path, '')
    await until('a filter has died of it', () => !existsSync(path))
    await dead()
  }
  await Promise.all([judged.goesOn(), calm.goesOn()])
  isOver = true
  await trying
  await Promise.all([judged.check(t), calm.check(t)])
  const { json } = await client.get('/judged/_all_docs?startkey="bad-"&endkey="bad.z"')
  t.same(json.rows, [], 'nothing that is forbidden was stored')
  calm.checkCalm(t)
  await checkTold(t, world, messages)
})
