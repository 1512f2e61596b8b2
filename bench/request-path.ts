/**
 * Counts the source files and functions that one request runs, on all threads.
 *
 *     npm run build && node bench/request-path.ts          the table
 *     npm run build && node bench/request-path.ts PUT      and the files of the requests whose names contain PUT
 *
 * The server also loads this file into each thread (`--import`), to count calls with V8's precise coverage. Functions
 * that run as often without a request are left out, and so are functions that do not run in every repetition, such as
 * timers and the expiry of cache entries.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { Session } from 'node:inspector'
import { SourceMap } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { BroadcastChannel, isMainThread } from 'node:worker_threads'

const MAIN = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const DIST = new URL('../dist/', import.meta.url).href
const SRC = new URL('../src/', import.meta.url).href
const COUNTING = 'SETTEE_REQUEST_PATH'
/** The time for a request in milliseconds, including the background writes that it causes. */
const WINDOW_MS = 400

/** Calls by function, as `folder/file.js name:offset` in dist/. */
type Calls = Record<string, number>

function countInThisThread(): void {
  const session = new Session()
  session.connect()
  session.post('Profiler.enable')
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  const channel = new BroadcastChannel(COUNTING)
  channel.unref()
  const take = () => {
    const calls: Calls = {}
    session.post('Profiler.takePreciseCoverage', (_error, { result }) => {
      for (const { url, functions } of result.filter((script) => script.url.startsWith(DIST))) {
        for (const { functionName, ranges } of functions) {
          const [range] = ranges
          const key = `${url.slice(DIST.length)} ${functionName}:${range?.startOffset}`
          // The first function is the module itself, which runs once, when it is loaded.
          if (range !== undefined && range.count > 0 && range.startOffset > 0) calls[key] = range.count
        }
      }
    })
    return calls
  }
  if (!isMainThread) {
    channel.onmessage = ({ data }: { data?: unknown }) => {
      if (data === 'take') channel.postMessage(take())
    }
    return
  }
  process.on('message', () => {
    const all = take()
    channel.onmessage = ({ data }: { data?: unknown }) => add(all, data as Calls)
    channel.postMessage('take')
    setTimeout(() => process.send?.(all), WINDOW_MS)
  })
}

function add(all: Calls, more: Calls): void {
  for (const [key, count] of Object.entries(more)) all[key] = (all[key] ?? 0) + count
}

async function takeCalls(server: ChildProcess): Promise<Calls> {
  server.send('take')
  const [calls] = (await once(server, 'message')) as [Calls]
  return calls
}

/** The calls during one request. */
async function callsDuring(server: ChildProcess, act: () => Promise<unknown>): Promise<Calls> {
  await takeCalls(server)
  await act()
  await sleep(WINDOW_MS)
  return takeCalls(server)
}

const sources = new Map<string, (offset: number) => string>()

/** @returns the function as `folder/file.ts name:offset`, with the file of its source and the offset in the bundle */
function inSources(key: string): string {
  const file = key.slice(0, key.indexOf(' '))
  const named = key.slice(file.length + 1)
  const sourceAt = sources.get(file) ?? sourcesOf(new URL(file, DIST))
  sources.set(file, sourceAt)
  return `${sourceAt(Number(named.slice(named.lastIndexOf(':') + 1)))} ${named}`
}

/** Finds the source of each offset in a file of the bundle. */
function sourcesOf(file: URL): (offset: number) => string {
  const text = readFileSync(file, 'utf8')
  const map = new SourceMap(JSON.parse(readFileSync(new URL(`${file.href}.map`), 'utf8')))
  return (offset) => {
    const before = text.slice(0, offset)
    const entry = map.findEntry(before.split('\n').length - 1, offset - before.lastIndexOf('\n') - 1)
    if (!('originalSource' in entry)) throw new Error(`${file.href}: no source of offset ${offset}`)
    return new URL(entry.originalSource, file).href.slice(SRC.length)
  }
}

/** How many times a request is repeated. */
const TIMES = 5
/** How many times it is sent before: what is read often takes another way. */
const WARM_UP = 40

/** The functions that run in each repetition of a request, and less often without it. */
async function functionsOf(server: ChildProcess, { run, once: isOnce }: Way): Promise<string[]> {
  if (!isOnce) for (let time = 0; time < WARM_UP; time += 1) await run()
  const idle = await callsDuring(server, async () => undefined)
  let functions: string[] | undefined
  for (let time = 0; time < (isOnce ? 1 : TIMES); time += 1) {
    const calls = await callsDuring(server, run)
    functions = (functions ?? Object.keys(calls)).filter((key) => (calls[key] ?? 0) > (idle[key] ?? 0))
  }
  return functions ?? []
}

interface Way {
  readonly name: string
  /** Whether a repetition would take another path. */
  readonly once?: boolean
  run(): Promise<unknown>
}

async function measure(filter: string | undefined): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-path-'))
  const server = spawn(process.execPath, [MAIN, 'serve', '--port', '0', '--data', folder], {
    env: {
      ...process.env,
      [COUNTING]: '1',
      NODE_OPTIONS: `--import ${import.meta.url}`,
      COUCHDB_USER: 'adm',
      COUCHDB_PASSWORD: 'pass',
      // Set so that the server does not restart itself (cli/serve-command.ts).
      MALLOC_TRIM_THRESHOLD_: '2097152',
    },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  try {
    const address = await readyAddress(server)
    for (const way of waysTo(address)) {
      const { name } = way
      const functions = (await functionsOf(server, way)).map(inSources)
      const files = new Set(functions.map((key) => key.split(' ', 1)[0] ?? ''))
      const folders = new Set([...files].map((file) => file.split('/', 1)[0]))
      console.log(
        `${name.padEnd(32)} ${files.size} files, ${functions.length} functions, ${folders.size} folders`,
      )
      if (filter !== undefined && name.includes(filter)) {
        for (const file of [...files].sort()) {
          const own = functions
            .filter((key) => key.startsWith(`${file} `))
            .map((key) => key.slice(file.length + 1))
          console.log(`  ${file}: ${own.map((each) => each.replace(/:\d+$/, '')).join(' ')}`)
        }
      }
    }
  } finally {
    server.kill('SIGTERM')
    await once(server, 'close')
    await rm(folder, { recursive: true, force: true })
  }
}

async function readyAddress(server: ChildProcess): Promise<string> {
  let printed = ''
  for await (const chunk of server.stdout ?? []) {
    printed += String(chunk)
    const address = /is ready at (http:[^"\s]+)/.exec(printed)?.[1]
    if (address === undefined) continue
    server.stdout?.on('data', () => undefined)
    return address
  }
  throw new Error('The server ended before it was ready.')
}

/** Each request has run once before, except the first login, so that one-time work does not count. */
function waysTo(address: string): Way[] {
  const basic = (password: string) => `Basic ${Buffer.from(password).toString('base64')}`
  const call = async (method: string, path: string, body?: string, headers = {}) => {
    const response = await fetch(new URL(path, address), {
      method,
      headers: { authorization: basic('adm:pass'), 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body }),
    })
    await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status}`)
  }
  const asAnna = () => call('GET', '/_session', undefined, { authorization: basic('anna:secret') })
  const feed = async () => {
    const ended = new AbortController()
    const url = new URL('/db/_changes?feed=continuous', address)
    const response = await fetch(url, { headers: { authorization: basic('adm:pass') }, signal: ended.signal })
    await response.body?.getReader().read()
    ended.abort()
  }
  let count = 0
  const next = () => {
    count += 1
    return `doc${count}`
  }
  const prepare = async () => {
    await call('PUT', '/_users').catch(() => undefined)
    await call(
      'PUT',
      '/_users/org.couchdb.user:anna',
      '{"name":"anna","password":"secret","roles":[],"type":"user"}',
    )
    await call('PUT', '/db')
    await call('PUT', '/db/first', '{"text":"a note"}')
    // Only long files are read on the HTTP thread (docs/decisions/0064).
    const text = 'x'.repeat(60_000)
    for (let n = 0; n < 6; n++) await call('PUT', `/db/filling-${n}`, JSON.stringify({ text }))
    for (const { run } of ways) await run()
  }
  const docs = () =>
    JSON.stringify({
      docs: [
        { _id: next(), text: 'a note' },
        { _id: next(), text: 'another' },
      ],
    })
  const ways: Way[] = [
    { name: 'GET /db/_revs_limit', run: () => call('GET', '/db/_revs_limit') },
    { name: 'PUT /db/doc', run: () => call('PUT', `/db/${next()}`, '{"text":"a note"}') },
    { name: 'GET /db/doc', run: () => call('GET', '/db/first') },
    { name: 'POST /db/_bulk_docs', run: () => call('POST', '/db/_bulk_docs', docs()) },
    {
      name: 'PUT /db/doc/attachment',
      run: () => call('PUT', `/db/${next()}/a.txt`, 'a text', { 'content-type': 'text/plain' }),
    },
    { name: 'GET /db/_changes?feed=continuous', run: feed },
    {
      name: 'PUT /_node/_local/_config key',
      run: () => call('PUT', '/_node/_local/_config/log/level', '"info"'),
    },
  ]
  return [
    { name: '(the first of each)', once: true, run: prepare },
    ...ways,
    { name: 'Basic login, first', once: true, run: asAnna },
    { name: 'Basic login, remembered', run: asAnna },
  ]
}

if (process.env[COUNTING] === undefined) await measure(process.argv[2])
else countInThisThread()
