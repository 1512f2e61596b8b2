/** One database's copy, on a thread of its own: made, or taken over from before, and held against the database. */
import { createHash } from 'node:crypto'
import { closeSync, fsyncSync, linkSync, openSync, readSync, rmSync } from 'node:fs'
import { setPriority } from 'node:os'
import { dirname } from 'node:path'
import { platform } from 'node:process'
import type { MessagePort } from 'node:worker_threads'
import { CouchError } from '../core/errors.ts'
import { defaultFloor } from '../core/types.ts'
import { Throttle } from '../core/yielder.ts'
import { diskSizeNow } from '../storage/free-space.ts'
import type { CopyFacts, CopyProgress, StorageEngine } from '../storage/storage-engine.ts'
import {
  type CopyJob,
  type CopyReply,
  type CopyRequest,
  DamagedCopy,
  type FileHash,
  type JobProgress,
  type KnownCopy,
  type MadeCopy,
} from './copy-wire.ts'
import { isFileFault } from './databases.ts'
import { packError } from './wire.ts'

type CopyingEngine = Pick<StorageEngine, 'openSnapshot' | 'fingerprint' | 'checkCopy'>

/** Hundredths of the work that are done when each part begins. */
const PARTS = { facts: 0, copy: 35, check: 60 } as const

const READ_BYTES = 1024 * 1024

/**
 * Takes over the copy that was made before, if the database's files say that it was not written to since.
 * @returns null when they do not, or the copy is not what it was
 */
async function takeUnwritten(
  engine: CopyingEngine,
  { database, target, known }: CopyJob & { readonly known: KnownCopy },
): Promise<MadeCopy | null> {
  const fingerprint = await engine.fingerprint(database)
  if (fingerprint === null || fingerprint !== known.fingerprint) return null
  if (damageOf(known) !== null || !isLinked(known.path, target)) return null
  return same(known, fingerprint)
}

/**
 * Copies a database.
 * @throws no_database, DamagedCopy, insufficient_storage, disk_fault, internal_server_error; then there is no copy
 */
async function copyDatabase(
  engine: CopyingEngine,
  { database, target, known, floor }: CopyJob,
  onProgress: (progress: JobProgress) => void,
): Promise<MadeCopy> {
  const before = await engine.fingerprint(database)
  const part = (from: number, to: number) => partOf(onProgress, from, to)
  const snapshot = await engine.openSnapshot(database).catch(damagedSource)
  try {
    const facts = await snapshot.facts(part(PARTS.facts, PARTS.copy)).catch(damagedSource)
    const after = await engine.fingerprint(database)
    const fingerprint = before === after ? before : null
    const damage = known === null || known.facts.digest !== facts.digest ? null : damageOf(known)
    if (
      known !== null &&
      known.facts.digest === facts.digest &&
      damage === null &&
      isLinked(known.path, target)
    ) {
      return same(known, fingerprint)
    }
    refuseIfFull(dirname(target), snapshot.bytes, floor)
    await snapshot.copyTo(target, part(PARTS.copy, PARTS.check))
    snapshot.close()
    const file = await checked(engine, target, facts)
    onProgress({ percent: 100 })
    return { facts, ...file, fingerprint, isSame: false, damage }
  } catch (error) {
    rmSync(target, { force: true })
    throw error
  } finally {
    snapshot.close()
  }
}

/** What SQLite cannot read of the database itself is no fault of the disk that the copy goes to. */
function damagedSource(error: unknown): never {
  if (isFileFault(error)) {
    const { cause } = error
    const reason = cause instanceof Error ? cause.message : error.message
    throw new DamagedCopy(`the database cannot be read: ${reason}`, { cause })
  }
  throw error
}

/** @throws DamagedCopy */
async function checked(engine: CopyingEngine, target: string, facts: CopyFacts): Promise<FileHash> {
  const found = await engine.checkCopy(target).catch((cause: Error) => {
    throw new DamagedCopy(cause.message, { cause })
  })
  for (const [name, value] of Object.entries(facts)) {
    const there = found[name as keyof CopyFacts]
    if (there !== value)
      throw new DamagedCopy(`${name} is ${there} in the copy, and ${value} in the database`)
  }
  return hashFile(target)
}

function same(known: KnownCopy, fingerprint: string | null): MadeCopy {
  const { facts, bytes, sha256 } = known
  return { facts, bytes, sha256, fingerprint, isSame: true, damage: null }
}

/** What is wrong with an earlier copy, by its bytes; null: nothing. */
function damageOf(known: KnownCopy): string | null {
  try {
    const { bytes, sha256 } = hashFile(known.path)
    if (bytes !== known.bytes) return `it has ${bytes} bytes, and had ${known.bytes}`
    return sha256 === known.sha256 ? null : 'its bytes have changed'
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'it is missing' : (error as Error).message
  }
}

/** Gives a file a second name. Some file systems have none, and the number of names has an end: then it is copied. */
function isLinked(from: string, to: string): boolean {
  try {
    linkSync(from, to)
  } catch {
    return false
  }
  syncFolder(dirname(to))
  return true
}

function syncFolder(path: string): void {
  const folder = openSync(path, 'r')
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
  }
}

/** @throws insufficient_storage */
function refuseIfFull(folder: string, bytes: number, floor: number | null): void {
  const { free, total } = diskSizeNow(folder)
  const least = floor ?? defaultFloor(total)
  if (free - bytes >= least) return
  const inMb = (count: number) => `${Math.ceil(count / 1_000_000)} MB`
  throw new CouchError(
    'insufficient_storage',
    `The disk of the backups has ${inMb(free)} left: the next copy takes ${inMb(bytes)}, and ${inMb(least)} ` +
      '(settee/free_space_floor) stay free.',
  )
}

/**
 * Holds a copy of what belongs to the server against what it must be.
 * @throws Error when it is something else; the file system's error
 */
async function checkCatalog(
  engine: Pick<StorageEngine, 'checkCatalogCopy'>,
  path: string,
  serverUuid: string,
): Promise<FileHash> {
  const found = await engine.checkCatalogCopy(path)
  if (found !== serverUuid) throw new Error(`the copy of the catalog is of the server ${found}`)
  return hashFile(path)
}

/** Reads a file whole. @throws the file system's error */
function hashFile(path: string): FileHash {
  const hash = createHash('sha256')
  const throttle = new Throttle()
  const buffer = Buffer.allocUnsafe(READ_BYTES)
  const file = openSync(path, 'r')
  let bytes = 0
  try {
    for (;;) {
      const read = readSync(file, buffer, 0, buffer.length, null)
      if (read === 0) return { bytes, sha256: hash.digest('hex') }
      hash.update(buffer.subarray(0, read))
      bytes += read
      throttle.pause()
    }
  } finally {
    closeSync(file)
  }
}

function partOf(onProgress: (progress: JobProgress) => void, from: number, to: number) {
  let told = from - 1
  return ({ done, total }: CopyProgress) => {
    const percent = Math.floor(from + ((to - from) * done) / Math.max(total, 1))
    if (percent <= told) return
    told = percent
    onProgress({ percent })
  }
}

// The thread that copies databases, as seen from within: one piece of work after the other.

/** As nice(1) counts. */
const NICENESS = 10

/** Serves a port until the thread is ended from without. */
export function serveCopies(port: MessagePort, engine: StorageEngine): void {
  yieldToOthers()
  const tell = (reply: CopyReply) => port.postMessage(reply)
  let before = Promise.resolve()
  port.on('message', (request: CopyRequest) => {
    before = before.then(() => answer(request, engine, tell))
  })
}

async function answer(
  request: CopyRequest,
  engine: StorageEngine,
  tell: (reply: CopyReply) => void,
): Promise<void> {
  const { call } = request
  try {
    tell({ call, type: 'answer', value: await work(request, engine, tell) })
  } catch (error) {
    if (error instanceof DamagedCopy) tell({ call, type: 'damaged', reason: error.message })
    else tell({ call, type: 'failed', error: packError(error) })
  }
}

async function work(
  request: CopyRequest,
  engine: StorageEngine,
  tell: (reply: CopyReply) => void,
): Promise<unknown> {
  const { call } = request
  if (request.type === 'catalog') return checkCatalog(engine, request.path, request.serverUuid)
  if (request.type === 'same') return takeUnwritten(engine, request.job)
  return copyDatabase(engine, request.job, (progress) => tell({ call, type: 'progress', progress }))
}

/** On Linux a thread has a priority of its own; elsewhere this would be the whole server's. */
function yieldToOthers(): void {
  if (platform !== 'linux') return
  try {
    setPriority(0, NICENESS)
  } catch {
    // It rests between its pieces of work in any case.
  }
}
