/** Opens what a power cut has left, with the real engine, and holds it against what was acknowledged. */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { TOKEN_KIND } from '../../../src/auth/token-record.ts'
import { parseIni } from '../../../src/config/ini-file.ts'
import { databaseFileName } from '../../../src/core/ids.ts'
import type { Catalog } from '../../../src/storage/catalog.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { allRecords } from '../../../src/storage/records.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { put } from '../../storage/conformance/edits.ts'
import { entriesOf } from '../../storage/conformance/setup.ts'
import type { Ledger } from './ledger.ts'
import { docValue } from './world.ts'

const ALL = { limit: 1_000_000 }

/** What is found of a database. */
interface Found {
  readonly docs: ReadonlyMap<string, string>
  readonly locals: ReadonlyMap<string, string>
  readonly security: string | null
  readonly updateSeq: number
  readonly problems: readonly string[]
}

/**
 * @param folder a data folder; it is written to
 * @param events how many of the record had happened when the power went
 * @returns what is not as it was acknowledged; empty when nothing was lost
 */
export async function problemsOf(folder: string, ledger: Ledger, events: number): Promise<string[]> {
  const engine = sqliteEngine({ dataDir: folder })
  try {
    const catalog = await engine.openCatalog()
    const names = (await entriesOf(catalog)).map(({ name }) => name)
    const problems = [
      ...(await configProblems(folder, ledger, events)),
      ...(await tokenProblems(catalog, ledger, events)),
      ...(await databaseProblems(engine, names, ledger, events)),
    ]
    await engine.close()
    return [...problems, ...names.flatMap((name) => integrityProblems(folder, name))]
  } catch (error) {
    return [
      `it cannot be opened: ${error instanceof Error ? `${error.message} (${String(error.cause)})` : error}`,
    ]
  } finally {
    await engine.close()
  }
}

function mismatch(ledger: Ledger, events: number, key: string, found: string | null): string[] {
  const allowed = ledger.allowed(key, events)
  if (allowed.includes(found)) return []
  return [`${key}: ${short(found)} instead of ${allowed.map(short).join(' or ')}`]
}

function short(value: string | null): string {
  return value === null ? 'nothing' : value.slice(0, 80)
}

async function configProblems(folder: string, ledger: Ledger, events: number): Promise<string[]> {
  const text = await readFile(join(folder, 'local.ini'), 'utf8').catch(() => '')
  const sections = parseIni(text)
  return ledger.keys('config|').flatMap((key) => {
    const [section = '', name = ''] = key.slice('config|'.length).split('/')
    return mismatch(ledger, events, key, sections.get(section)?.get(name) ?? null)
  })
}

async function tokenProblems(catalog: Catalog, ledger: Ledger, events: number): Promise<string[]> {
  const tokens = new Map<string, string>()
  for await (const { value } of allRecords(catalog, TOKEN_KIND)) {
    const { name, account } = JSON.parse(value) as { name: string; account: string }
    tokens.set(`token|${name}`, account)
  }
  return ledger.keys('token|').flatMap((key) => mismatch(ledger, events, key, tokens.get(key) ?? null))
}

async function databaseProblems(
  engine: StorageEngine,
  listed: readonly string[],
  ledger: Ledger,
  events: number,
): Promise<string[]> {
  const problems: string[] = []
  const expected = ledger.keys('db|').map((key) => key.slice('db|'.length))
  for (const name of expected) {
    const allowed = ledger.allowed(`db|${name}`, events)
    const generations = allowed.filter((key) => key !== null)
    if (!listed.includes(name)) {
      if (!allowed.includes(null)) problems.push(`the database ${name} is gone`)
    } else if (generations.length === 0) problems.push(`the deleted database ${name} is back`)
    else {
      const found = await readDatabase(await engine.openDatabase(name))
      const tries = generations.map((generation) => generationProblems(found, generation, ledger, events))
      problems.push(...(tries.find((tried) => tried.length === 0) ?? tries[0] ?? []))
    }
  }
  if (listed.includes('_users')) {
    const { docs, problems: strange } = await readDatabase(await engine.openDatabase('_users'))
    problems.push(...strange)
    for (const key of ledger.keys('account|')) {
      const found = docs.has(key.slice('account|'.length)) ? 'there' : null
      problems.push(...mismatch(ledger, events, key, found))
    }
  }
  return problems
}

function generationProblems(found: Found, generation: string, ledger: Ledger, events: number): string[] {
  const { docs, locals, security, updateSeq } = found
  const things = (kind: string, values: ReadonlyMap<string, string>) => {
    const prefix = `${kind}|${generation}|`
    const keys = new Set([...ledger.keys(prefix), ...[...values.keys()].map((id) => prefix + id)])
    return [...keys].flatMap((key) =>
      mismatch(ledger, events, key, values.get(key.slice(prefix.length)) ?? null),
    )
  }
  const shown = ledger.shown(generation, events)
  return [
    ...found.problems,
    ...things('doc', docs),
    ...things('local', locals),
    ...mismatch(ledger, events, `security|${generation}`, security),
    ...(updateSeq < shown ? [`${generation} is at ${updateSeq}, and was seen at ${shown}`] : []),
  ]
}

async function readDatabase(store: DatabaseStore): Promise<Found> {
  const docs = new Map<string, string>()
  const { rows, view } = await store.readChanges({ since: 0 }, ALL, (doc) => {
    const attachments = doc.attachments(doc.rev).map((attachment) => ({ ...attachment }))
    return { id: doc.id, seq: doc.seq, deleted: doc.deleted, body: doc.body(doc.rev) ?? '', attachments }
  })
  const seqs = rows.map(({ seq }) => seq)
  for (const { id, deleted, body, attachments } of rows) {
    const digests: Record<string, string> = {}
    for (const { name, blob, storedLength } of attachments) {
      const content = (await store.readBlob(blob, 0, storedLength)) ?? new Uint8Array()
      digests[name] = createHash('sha256').update(content).digest('hex')
    }
    if (!deleted) docs.set(id, docValue(body, digests))
  }
  const locals = new Map((await store.readLocalRange({}, ALL)).rows.map(({ id, body }) => [id, body]))
  const problems: string[] = []
  const { length } = await store.readRange({}, ALL, (doc) => doc.id).then(({ rows }) => rows)
  if (length !== docs.size || view.docCount !== docs.size)
    problems.push('the feed and the documents do not agree')
  if (seqs.some((seq, at) => seq <= (seqs[at - 1] ?? 0))) problems.push('the feed does not ascend')
  if ((seqs.at(-1) ?? 0) > view.updateSeq) problems.push('the feed goes beyond update_seq')
  await store.updateDocs([put('after the power cut')])
  const { updateSeq } = await store.view()
  if (updateSeq !== view.updateSeq + 1) problems.push(`the next update had the number ${updateSeq}`)
  const security = view.security === null ? null : JSON.stringify(view.security)
  return { docs, locals, security, updateSeq: view.updateSeq, problems }
}

function integrityProblems(folder: string, name: string): string[] {
  const file = new Sqlite(join(folder, 'databases', `${databaseFileName(name)}.sqlite`), { readonly: true })
  try {
    const said = file.pragma('integrity_check', { simple: true })
    return said === 'ok' ? [] : [`${name}: ${String(said)}`]
  } finally {
    file.close()
  }
}
