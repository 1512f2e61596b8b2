/** All that a server answers about its databases, taken apart into what can be damaged by itself. */
import { createHash } from 'node:crypto'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { withControl } from '../../../src/cli/operate.ts'
import { exportFile } from '../../../src/cli/transfer-command.ts'
import type { TestRequest, TestServer } from '../../helpers/server.ts'
import { ADMIN, type DatabaseCounts, type Template, type TemplateDatabase, USER } from './template.ts'

/** What was answered with success, by its name; and how often something else was answered, by the error. */
export interface Readings {
  readonly values: Map<string, string>
  readonly errors: Map<string, number>
}

interface Reading {
  readonly method?: string
  readonly path: string
  readonly request?: TestRequest
  /** Without the admin's password. */
  readonly isAnonymous?: boolean
  /** Takes the answer apart, into what may be missing by itself. Default: the whole. */
  readonly parts?: (json: Json) => Iterable<readonly [string, unknown]>
}

// biome-ignore lint/suspicious/noExplicitAny: answers of all routes
type Json = any

/** The number of a token; its code belongs to the state of the database, which damage may end. What is restored gets another. */
const numberOf = (seq: unknown) => Number.parseInt(String(seq), 10)

/** Without the rows whose document is an error, or missing: a damaged page may hide it. */
function* rowsOf({ rows }: Json): Iterable<readonly [string, unknown]> {
  const isThere = (row: Json) => !('error' in row) && (row.doc !== null || row.value?.deleted === true)
  for (const row of rows) if (isThere(row)) yield [`${row.id ?? ''} ${JSON.stringify(row.key)}`, row]
}

function* changesOf({ results, last_seq }: Json): Iterable<readonly [string, unknown]> {
  let last = 0
  for (const row of results) {
    const seq = numberOf(row.seq)
    yield ['the order of the feed', seq > last]
    last = seq
    if (!('error' in row)) yield [row.id, { ...row, seq: null }]
  }
  yield ['the order of the feed', numberOf(last_seq) >= last]
}

function* docsOf({ docs }: Json): Iterable<readonly [string, unknown]> {
  for (const doc of docs) yield [doc._id, doc]
}

function* revisionsOf(rows: Json): Iterable<readonly [string, unknown]> {
  for (const row of rows) if (row.ok !== undefined) yield [row.ok._rev, row.ok]
}

function* bulkGetOf({ results }: Json): Iterable<readonly [string, unknown]> {
  for (const { id, docs } of results)
    for (const { ok } of docs) if (ok !== undefined) yield [`${id} ${ok._rev}`, ok]
}

/** The times and sizes in the list have no checksum; what a version says has one. */
function* versionsOf({ versions }: Json): Iterable<readonly [string, unknown]> {
  for (const { rev } of versions) yield [rev, rev]
}

const json = (body: unknown): TestRequest => ({
  body: JSON.stringify(body),
  headers: { 'content-type': 'application/json' },
})

function readingsOf(
  db: string,
  ids: readonly string[],
  superseded: Readonly<Record<string, string>>,
): Reading[] {
  const find = (query: object): Reading => ({
    method: 'POST',
    path: `/${db}/_find`,
    request: json(query),
    parts: docsOf,
  })
  const all = { docs: ids.map((id) => ({ id })) }
  return [
    ...ids.flatMap((id): Reading[] => [
      { path: `/${db}/${id}?revs=true&conflicts=true&deleted_conflicts=true` },
      {
        path: `/${db}/${id}?open_revs=all&revs=true`,
        request: { headers: { accept: 'application/json' } },
        parts: revisionsOf,
      },
      { path: `/_settee/databases/${db}/history?id=${id}`, parts: versionsOf },
    ]),
    ...Object.entries(superseded).map(([id, rev]) => ({
      path: `/_settee/databases/${db}/version?id=${id}&rev=${rev}`,
    })),
    ...[
      'doc-06/large.jpg',
      'doc-07/text.txt',
      'doc-08/small.jpg',
      'doc-05/small.jpg',
      'picture/new.jpg',
    ].flatMap((path) => [
      { path: `/${db}/${path}` },
      { path: `/${db}/${path}`, request: { headers: { range: 'bytes=3-17' } } },
      { path: `/${db}/${path}`, request: { headers: { 'accept-encoding': 'gzip' } } },
    ]),
    { path: `/${db}/_all_docs?include_docs=true&conflicts=true`, parts: rowsOf },
    { method: 'POST', path: `/${db}/_all_docs`, request: json({ keys: ids }), parts: rowsOf },
    { path: `/${db}/_design_docs?include_docs=true`, parts: rowsOf },
    { path: `/${db}/_changes`, parts: changesOf },
    { path: `/${db}/_changes?include_docs=true&style=all_docs&conflicts=true`, parts: changesOf },
    {
      method: 'POST',
      path: `/${db}/_changes?filter=_selector`,
      request: json({ selector: { n: { $gt: 3 } } }),
      parts: changesOf,
    },
    {
      method: 'POST',
      path: `/${db}/_bulk_get?revs=true&attachments=true`,
      request: json(all),
      parts: bulkGetOf,
    },
    find({ selector: { n: { $gte: 0 } }, use_index: 'by-n' }),
    find({ selector: { text: { $exists: true } } }),
    find({ selector: { n: { $gte: 0 } }, fields: ['_id', 'n'] }),
    { path: `/${db}/_design/d/_view/v?reduce=false`, parts: rowsOf },
    { path: `/${db}/_design/d/_view/v?reduce=false&include_docs=true`, parts: rowsOf },
    { path: `/${db}/_design/d/_view/v?group=true`, parts: rowsOf },
    ...[1, 2, 3].map((n) => ({ path: `/${db}/_local/checkpoint-${n}` })),
    { path: `/${db}/_local_docs?include_docs=true`, parts: rowsOf },
    { path: `/${db}/_security`, parts: securityOf },
    { path: `/${db}/_revs_limit` },
    {
      path: `/${db}`,
      parts: countsOf,
    },
  ]
}

/** A log of which the end is lost gives an earlier state, with other counts. */
function countsOf({ doc_count, doc_del_count, update_seq }: DatabaseCounts): [string, unknown][] {
  return [[`counts at ${numberOf(update_seq)}`, { doc_count, doc_del_count }]]
}

/** The readings of states that damage may go back to. */
function statesOf({ name, states }: TemplateDatabase): [string, string][] {
  return states.flatMap((state) =>
    countsOf(state).map(([key, value]): [string, string] => [
      `${nameOf({ path: `/${name}` })} ${key}`,
      JSON.stringify(value),
    ]),
  )
}

/** What was written, and how an answer differs from it. */
export class Truth {
  readonly #written: ReadonlyMap<string, string>

  /** @param read what was answered before anything was damaged */
  constructor(read: Readings, { databases }: Template) {
    this.#written = new Map([...read.values, ...databases.flatMap(statesOf)])
  }

  /** The first answers that nobody has written. */
  wrongIn({ values }: Readings): object[] {
    const written = (name: string) => this.#written.get(name.replace(/^restored /, ''))
    // What is restored makes states that were not seen.
    const isWrong = ([name, value]: [string, string]) =>
      written(name) !== value && !(isState(name) && written(name) === undefined)
    return [...values]
      .filter(isWrong)
      .slice(0, 5)
      .map(([name, value]) => ({ name, ...differenceOf(value, written(name) ?? '') }))
  }

  /** What was written and is not there. @param part of its name */
  missingIn({ values }: Readings, part = ''): string[] {
    const isMissing = (name: string) => name.includes(part) && !isState(name) && !values.has(name)
    return [...this.#written.keys()].filter(isMissing)
  }
}

/** Two texts from a little before the first place where they differ. */
function differenceOf(value: string, written: string): object {
  const differs = [...value].findIndex((char, place) => char !== written[place])
  const from = Math.max(0, (differs < 0 ? value.length : differs) - 60)
  return { from, value: value.slice(from, from + 300), written: written.slice(from, from + 300) }
}

const isState = (name: string) => name.includes(' counts at ')

function nameOf({ method = 'GET', path, request = {}, isAnonymous = false }: Reading): string {
  return `${isAnonymous ? 'anonymous ' : ''}${method} ${path} ${digestOf(JSON.stringify(request))}`
}

/** Of a damaged one nobody knows whom it lets in: it then names server admins alone. */
function securityOf(security: Json): [string, unknown][] {
  return security.members?.roles?.join() === '_admin' ? [] : [['', security]]
}

/** Reads everything of the databases, and who may sign in. */
export async function readAll(server: TestServer, { databases, token }: Template): Promise<Readings> {
  const found: Readings = { values: new Map(), errors: new Map() }
  await readSessions(server, token, found)
  for (const database of databases) await readDatabase(server, database, found)
  return found
}

/** Reads everything of one database. @param db where it is now, if it was restored under another name */
export async function readDatabase(
  server: TestServer,
  { name, superseded }: TemplateDatabase,
  found: Readings,
  db = name,
): Promise<void> {
  const own: Readings = { values: new Map(), errors: found.errors }
  await Promise.all(readingsOf(db, IDS, superseded).map((reading) => read(server, reading, own)))
  await readExport(server, db, own)
  for (const [key, value] of own.values) found.values.set(key.replaceAll(db, name), value)
}

const IDS = [
  ...Array.from({ length: 10 }, (_, n) => `doc-${String(n).padStart(2, '0')}`),
  ...Array.from({ length: 3 }, (_, n) => `new-${n}`),
  ...['picture', '_design/d', '_design/by-n'],
]

async function read(server: TestServer, reading: Reading, found: Readings): Promise<void> {
  const { method = 'GET', path, request = {}, isAnonymous = false, parts } = reading
  const name = nameOf(reading)
  const answer = await server
    .request(method, path, { ...(!isAnonymous && { auth: ADMIN }), ...request })
    .catch(() => null)
  if (answer === null) return count(found, 'broken off')
  if (answer.status >= 300) return count(found, `${answer.status} ${answer.json?.error ?? answer.text}`)
  if (parts === undefined) {
    found.values.set(name, isJson(answer.headers) ? answer.text : digestOf(answer.text))
    return
  }
  if (answer.json === undefined) {
    found.values.set(name, `broken JSON: ${answer.text}`)
    return
  }
  for (const [key, value] of parts(answer.json)) enter(found, `${name} ${key}`, value)
}

/** A part that is there twice is there with another name, which nobody has written. */
function enter({ values }: Readings, name: string, value: unknown): void {
  const text = JSON.stringify(value)
  if (name.endsWith('the order of the feed'))
    values.set(name, `${text === 'true' && values.get(name) !== 'false'}`)
  else values.set(values.has(name) ? `${name}, again` : name, text)
}

const digestOf = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 16)

const isJson = (headers: { readonly [name: string]: unknown }) =>
  String(headers['content-type']).includes('json')

function count({ errors }: Readings, error: string): void {
  errors.set(error, (errors.get(error) ?? 0) + 1)
}

async function readExport(server: TestServer, db: string, found: Readings): Promise<void> {
  const { dataDir } = server
  const path = join(dataDir, `${db}.export`)
  try {
    const outcome = await exportFile(db, path, (work) =>
      withControl(dataDir, {}, (controls) => work(controls, dataDir)),
    )
    if (outcome.gaps !== null) count(found, 'gaps in an export')
    const lines = (await readFile(path, 'utf8')).split('\n').filter((line) => line !== '')
    // The first one describes the file.
    for (const line of lines.slice(1))
      for (const doc of JSON.parse(line)) enter(found, `export ${db} ${doc._id} ${doc._rev}`, doc)
  } catch (error) {
    if (error instanceof SyntaxError) enter(found, `export ${db}`, 'broken JSON')
    else count(found, 'no export')
  } finally {
    await rm(path, { force: true })
  }
}

async function readSessions(server: TestServer, token: string, found: Readings): Promise<void> {
  const signIn = (password: string): Reading => ({
    method: 'POST',
    path: '/_session',
    request: json({ name: USER.name, password }),
    isAnonymous: true,
  })
  await read(server, signIn(USER.password), found)
  await read(server, signIn('wrong'), found)
  const request = { headers: { authorization: `Bearer ${token}` } }
  const userOf = ({ userCtx }: Json): [string, unknown][] => (userCtx.name === null ? [] : [['', userCtx]])
  await read(server, { path: '/_session', request, isAnonymous: true, parts: userOf }, found)
  for (const path of ['/_users/_all_docs', '/notes-0/doc-00', '/_node/_local/_config'])
    await read(server, { path, isAnonymous: true }, found)
}
