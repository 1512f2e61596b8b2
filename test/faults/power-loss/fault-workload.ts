/**
 * Run by the recorder: writes to stores while calls of the file system fail in turn, and looks whether anybody was
 * told a lie. Arguments: data folder, path for marks, what to do. What is not as it should be becomes a mark.
 */
import { constants } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { openConfig } from '../../../src/config/config.ts'
import type { Catalog } from '../../../src/storage/catalog.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { attachment, put } from '../../storage/conformance/edits.ts'
import { isStorageFault } from '../../storage/conformance/faults.ts'
import { entriesOf } from '../../storage/conformance/setup.ts'
import { type Attempt, REFUSAL, runWorkload, storedMarks } from '../../storage/conformance/workload.ts'
import { MarkWriter } from './ledger.ts'

const [, , dataDir = '', markPath = '', task = ''] = process.argv
const marks = new MarkWriter(markPath)
const { EIO, ENOSPC } = constants.errno

/** More calls than anything here makes. */
const MOST_CALLS = 2000

interface Fault {
  /** Kinds of calls as recorder.c names them: open with O_CREAT, names, syncs, truncations, writes. */
  readonly kinds: string
  readonly error: number
  /** From the call on, and not only at it. */
  readonly lasting: boolean
  /** Half of a write is done before the next one fails. */
  readonly short: boolean
}

const EVERY_FAULT: readonly Fault[] = [
  { kinds: 'w', error: EIO, lasting: false, short: false },
  { kinds: 'w', error: EIO, lasting: true, short: false },
  { kinds: 'w', error: ENOSPC, lasting: false, short: false },
  { kinds: 'w', error: ENOSPC, lasting: true, short: false },
  { kinds: 'w', error: ENOSPC, lasting: false, short: true },
  { kinds: 'w', error: EIO, lasting: true, short: true },
  { kinds: 's', error: EIO, lasting: false, short: false },
  { kinds: 's', error: EIO, lasting: true, short: false },
  { kinds: 's', error: ENOSPC, lasting: false, short: false },
  { kinds: 'ont', error: EIO, lasting: false, short: false },
]

/** Arms a fault at the n-th call below a path. */
function arm({ kinds, error, lasting, short }: Fault, at: number, part: string): void {
  marks.command(`!arm ${kinds} ${at} ${Number(lasting)} ${error} ${Number(short)} ${part}`)
}

/** @returns whether the fault has struck */
function disarm(): boolean {
  return marks.command('!disarm')
}

function check(isTrue: boolean, problem: string): void {
  if (!isTrue) marks.problem(problem)
}

/** One group: documents, one of them with an attachment, a local document and the security object. */
async function oneGroup(store: DatabaseStore): Promise<Attempt[]> {
  const body = (mark: string) => JSON.stringify({ mark })
  const file = attachment('file', Buffer.alloc(20_000, 7))
  const docs = [put('a', body('g1')), put('b', body('g2'), { attachments: [file] }), put('c', body('g3'))]
  const local = { id: '_local/l', decide: () => ({ result: 0, write: { rev: 1, body: body('g4') } }) }
  const outcomes = await Promise.all([
    store.updateDocs(docs),
    store.updateLocals([local]),
    store
      .updateSettings(() => ({ result: 0, write: { security: { mark: 'g5' } } }))
      .then((result) => [{ result }])
      .catch((error: unknown) => [{ error }]),
  ])
  return outcomes.flat().map((outcome, at) => ({
    mark: `g${at + 1}`,
    kind: at < 3 ? 'doc' : at === 3 ? 'local' : 'settings',
    done: 'result' in outcome,
    error: 'error' in outcome ? outcome.error : undefined,
  }))
}

/** The same, and a compaction, which brings the log into the file and cuts both. */
async function compacted(store: DatabaseStore): Promise<Attempt[]> {
  const attempts = await oneGroup(store)
  await store
    .compact()
    .catch((error: unknown) => check(isStorageFault(error), `compaction: ${String(error)}`))
  return attempts
}

/** A group before which the file is rewritten with larger pages (decision 0043). */
async function grown(store: DatabaseStore): Promise<Attempt[]> {
  const body = JSON.stringify({ mark: 'long', text: 'x'.repeat(250_000) })
  const [outcome = {}] = await store.updateDocs([put('long', body)])
  const error = 'error' in outcome ? outcome.error : undefined
  return [{ mark: 'long', kind: 'doc', done: 'result' in outcome, error }]
}

/** The first commit since the file was opened, before which the folder is synced for the log's name. */
function firstGroup(store: DatabaseStore): Promise<Attempt[]> {
  return oneGroup(store)
}

/** The marks that must be stored after attempts. */
function told(attempts: readonly Attempt[], ...more: readonly string[]): string[] {
  return [...attempts.filter(({ done }) => done).map(({ mark }) => mark), ...more].sort()
}

function checkErrors(attempts: readonly Attempt[], when: string): void {
  for (const { done, error, mark } of attempts) {
    const isOurs = done || error === REFUSAL || isStorageFault(error)
    check(isOurs, `${when}: the error of ${mark} is ${String(error)}`)
  }
}

async function checkStored(store: DatabaseStore, wanted: readonly string[], when: string): Promise<void> {
  const stored = await storedMarks(store)
  check(JSON.stringify(stored) === JSON.stringify(wanted), `${when}: stored is ${stored}, told was ${wanted}`)
}

function checkIntegrity(name: string, when: string): void {
  const file = new Sqlite(join(dataDir, 'databases', `${name}.sqlite`), { readonly: true })
  const said = file.pragma('integrity_check', { simple: true })
  file.close()
  check(said === 'ok', `${when}: ${String(said)}`)
}

async function seeded(engine: StorageEngine, catalog: Catalog, name: string): Promise<DatabaseStore> {
  await catalog.create(name)
  const store = await engine.openDatabase(name)
  await store.updateDocs([put('seed')])
  return store
}

async function goesOn(store: DatabaseStore, when: string): Promise<void> {
  const [outcome] = await store.updateDocs([put('later', '{"mark":"later"}')])
  check(outcome !== undefined && 'result' in outcome, `${when}: the store does not go on`)
}

/** A fault at one call of a workload. @returns whether it struck */
async function tryOnce(
  engine: StorageEngine,
  catalog: Catalog,
  fault: Fault,
  at: number,
  workload: (store: DatabaseStore) => Promise<Attempt[]>,
): Promise<boolean> {
  const name = `${fault.kinds}${at}`
  const when = `${JSON.stringify(fault)} at ${at} of ${workload.name}`
  const isFirst = workload === firstGroup
  if (isFirst) await catalog.create(name)
  const store = isFirst ? await engine.openDatabase(name) : await seeded(engine, catalog, name)
  arm(fault, at, isFirst ? 'databases' : `${name}.sqlite`)
  const attempts = await workload(store)
  const struck = disarm()
  checkErrors(attempts, when)
  check(
    struck || attempts.every(({ done, error }) => done || error === REFUSAL),
    `${when}: refused without a fault`,
  )
  await checkStored(store, told(attempts), when)
  await marks.act([[`stored|${name}`, JSON.stringify(told(attempts, 'later'))]], () => goesOn(store, when))
  await store.close()
  const again = await engine.openDatabase(name)
  await checkStored(again, told(attempts, 'later'), `${when}, and opened again`)
  await again.close()
  checkIntegrity(name, when)
  marks.begun([[`stored|${name}`, null]])
  await catalog.delete(name)
  return struck
}

/** Each fault at each position of a group, and failing syncs at each position of a longer workload. */
async function groups(): Promise<void> {
  const engine = sqliteEngine({ dataDir })
  const catalog = await engine.openCatalog()
  const untilUnharmed = async (fault: Fault, workload: typeof oneGroup) => {
    let at = 1
    while (at < MOST_CALLS && (await tryOnce(engine, catalog, fault, at, workload))) at += 1
    marks.count(`${fault.kinds} ${workload.name}`, at - 1)
  }
  for (const fault of EVERY_FAULT) await untilUnharmed(fault, oneGroup)
  for (const fault of EVERY_FAULT.filter(({ kinds }) => kinds === 's')) {
    await untilUnharmed(fault, firstGroup)
    await untilUnharmed(fault, runWorkload)
  }
  for (const lasting of [false, true]) {
    await untilUnharmed({ kinds: 'ntsw', error: EIO, lasting, short: false }, grown)
  }
  await untilUnharmed({ kinds: 'ntsw', error: EIO, lasting: false, short: false }, compacted)
  await untilUnharmed({ kinds: 's', error: EIO, lasting: true, short: false }, compacted)
  await engine.close()
}

/** Databases of which each sees one sync more than the one before it until they fail. */
const DYING = 4

/** Syncs fail from some call on, and the process dies before they work again. */
async function dying(): Promise<void> {
  const engine = sqliteEngine({ dataDir })
  const catalog = await engine.openCatalog()
  for (let at = 1; at <= DYING; at++) {
    const name = `dying${at}`
    const store = await seeded(engine, catalog, name)
    arm({ kinds: 's', error: EIO, lasting: true, short: false }, at, `${name}.sqlite`)
    const attempts = await runWorkload(store)
    marks.count('dying', Number(disarm()))
    marks.told([[`stored|${name}`, JSON.stringify(told(attempts))]])
  }
  process.kill(process.pid, 'SIGKILL')
}

/** The process after that one. Its first argument behind the task: what each database was told to hold. */
async function restarted(): Promise<void> {
  const wanted = JSON.parse(process.argv[5] ?? '{}') as Readonly<Record<string, readonly string[]>>
  const engine = sqliteEngine({ dataDir })
  await engine.openCatalog()
  for (const [name, before] of Object.entries(wanted)) {
    const store = await engine.openDatabase(name)
    await checkStored(store, before, `${name} after the restart`)
    const set = JSON.stringify([...before, 'later'].sort())
    await marks.act([[`stored|${name}`, set]], () => goesOn(store, name))
  }
  process.kill(process.pid, 'SIGKILL')
}

/** Making and deleting databases, with a fault at each call in turn. */
async function catalogActs(): Promise<void> {
  let engine = sqliteEngine({ dataDir })
  let catalog = await engine.openCatalog()
  const succeeds = async (work: Promise<unknown>, when: string) => {
    const error = await work.then(
      () => null,
      (reason: unknown) => reason,
    )
    check(error === null || isStorageFault(error), `${when}: the error is ${String(error)}`)
    return error === null
  }
  const present = async (name: string, wanted: boolean, when: string) => {
    check(
      (await entriesOf(catalog)).some((entry) => entry.name === name) === wanted,
      `${when}: listed or not`,
    )
    const store = await engine.openDatabase(name).catch(() => null)
    if (store === null) return check(!wanted, `${when}: it cannot be opened`)
    check((await store.info()).docCount === (name.startsWith('gone') ? 1 : 0), `${when}: its documents`)
    await store.close()
  }
  const opens = async (name: string) => {
    const store = await engine.openDatabase(name).catch(() => null)
    await store?.close()
    return store !== null
  }
  const restart = async () => {
    await engine.close()
    engine = sqliteEngine({ dataDir })
    catalog = await engine.openCatalog()
  }
  for (const lasting of [false, true]) {
    const fault: Fault = { kinds: 'onstw', error: EIO, lasting, short: false }
    for (let at = 1, struck = true; struck && at < MOST_CALLS; at++) {
      const name = `made${lasting}${at}`.toLowerCase()
      arm(fault, at, '-')
      const made = await succeeds(catalog.create(name), `making ${name}`)
      struck = disarm()
      await present(name, made, `making ${name}`)
      if (!lasting) check((await opens(name)) === made, `making ${name}: opened or not`)
      if (made) marks.told([[`db|${name}`, 'made']])
      await restart()
      // Where faults last, what was made half cannot be taken back, and is there, empty, after a restart.
      if (!lasting) await present(name, made, `making ${name}, and a restart`)
      if (!made) await catalog.delete(name).catch(() => undefined)
      if (!made) check(await succeeds(catalog.create(name), name), `${name} cannot be made again`)
      await present(name, true, `making ${name} again`)
      marks.told([[`db|${name}`, 'made']])
      if (!struck) marks.count(`making a database, lasting: ${lasting}`, at - 1)
    }
    for (let at = 1, struck = true; struck && at < MOST_CALLS; at++) {
      const name = `gone${lasting}${at}`.toLowerCase()
      await (await seeded(engine, catalog, name)).close()
      arm(fault, at, '-')
      const deleted = await succeeds(catalog.delete(name), `deleting ${name}`)
      struck = disarm()
      // Where the name cannot be given back either, what was refused has happened all the same.
      if (lasting && !deleted) continue
      await present(name, !deleted, `deleting ${name}`)
      marks.told([[`db|${name}`, deleted ? null : 'made']])
      await restart()
      await present(name, !deleted, `deleting ${name}, and a restart`)
      if (!deleted) check(await succeeds(catalog.delete(name), name), `${name} cannot be deleted again`)
      await present(name, false, `deleting ${name} again`)
      marks.told([[`db|${name}`, null]])
      if (!struck) marks.count(`deleting a database, lasting: ${lasting}`, at - 1)
    }
  }
  await engine.close()
}

/** The configuration, with a fault at each call in turn. */
async function configuration(): Promise<void> {
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  await config.set('mine', 'key', 'old')
  for (const lasting of [false, true]) {
    for (let at = 1, struck = true; struck && at < MOST_CALLS; at++) {
      const value = `v${lasting}${at}`
      const before = config.get('mine', 'key')
      arm({ kinds: 'onstw', error: EIO, lasting, short: false }, at, '-')
      const error = await config.set('mine', 'key', value).then(
        () => null,
        (reason: unknown) => reason,
      )
      struck = disarm()
      const when = `setting a key, fault ${at}`
      check(error === null || isStorageFault(error), `${when}: the error is ${String(error)}`)
      const wanted = error === null ? value : before
      check(config.get('mine', 'key') === wanted, `${when}: in effect is ${config.get('mine', 'key')}`)
      if (!lasting)
        check((await config.stored('mine', 'key')) === wanted, `${when}: stored is something else`)
      await config.set('mine', 'key', value).catch(() => check(false, `${when}: it cannot be set again`))
      marks.told([['config|mine/key', value]])
      if (!struck) marks.count(`setting a key, lasting: ${lasting}`, at - 1)
    }
  }
}

const TASKS: Readonly<Record<string, () => Promise<void>>> = {
  groups,
  dying,
  restarted,
  catalogActs,
  configuration,
}

await TASKS[task]?.()
