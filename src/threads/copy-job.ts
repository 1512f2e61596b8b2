/**
 * The thread that copies databases: makes a copy or links an earlier one, and compares it with the database. It also checks
 * databases that are in use.
 */
import { createHash } from 'node:crypto'
import { closeSync, fsyncSync, linkSync, openSync, readSync, rmSync } from 'node:fs'
import { setPriority } from 'node:os'
import { dirname } from 'node:path'
import { platform } from 'node:process'
import type { MessagePort } from 'node:worker_threads'
import { CouchError, isFileFault } from '../core/errors.ts'
import { Throttle } from '../core/event-loop.ts'
import { defaultFloor } from '../core/types.ts'
import { diskSizeNow } from '../storage/free-space.ts'
import {
  type CheckedCopy,
  type CheckStep,
  type CopyFacts,
  type CopyProgress,
  copiesOf,
  type EngineCopies,
  type StorageEngine,
} from '../storage/storage-engine.ts'
import {
  type CopyJob,
  type CopyRequest,
  type DamageAnswer,
  DamagedCopy,
  type FileHash,
  type FinishedCopy,
  type JobProgress,
  type KnownCopy,
  type ProgressEvent,
} from './copies.ts'
import { type FoundRevision, findContent, findRevision, readPiece } from './good-copies.ts'
import { RpcServer } from './rpc.ts'

/** The progress at which each part of the work begins, in percent. */
const PARTS = { facts: 0, copy: 35, check: 60 } as const

const READ_BYTES = 1024 * 1024

/**
 * Links the earlier copy if the database's files show that nothing was written since.
 * @returns null when something was written, or the earlier copy is damaged
 */
async function reuseIfUnwritten(
  copies: EngineCopies,
  { database, target, known }: CopyJob & { readonly known: KnownCopy },
): Promise<FinishedCopy | null> {
  const fingerprint = await copies.fingerprint(database)
  if (fingerprint === null || fingerprint !== known.fingerprint) return null
  if (faultOf(known) !== null || !tryLink(known.path, target)) return null
  return linkedCopy(known, fingerprint)
}

/**
 * Copies a database.
 * @throws no_database, DamagedCopy, insufficient_storage, disk_fault, internal_server_error; no file is left then
 */
async function copyDatabase(
  copies: EngineCopies,
  { database, target, known, floor }: CopyJob,
  onProgress: (progress: JobProgress) => void,
): Promise<FinishedCopy> {
  const before = await copies.fingerprint(database)
  const part = (from: number, to: number) => partOf(onProgress, from, to)
  const snapshot = await copies.openSnapshot(database).catch(damagedSource)
  try {
    const facts = await snapshot.facts(part(PARTS.facts, PARTS.copy)).catch(damagedSource)
    const after = await copies.fingerprint(database)
    const fingerprint = before === after ? before : null
    const knownFault = known === null || known.facts.digest !== facts.digest ? null : faultOf(known)
    if (
      known !== null &&
      known.facts.digest === facts.digest &&
      knownFault === null &&
      tryLink(known.path, target)
    ) {
      return linkedCopy(known, fingerprint)
    }
    refuseIfFull(dirname(target), snapshot.bytes, floor)
    await snapshot.copyTo(target, part(PARTS.copy, PARTS.check))
    snapshot.close()
    const file = await verifiedCopy(copies, target, facts)
    onProgress({ percent: 100 })
    return { facts, ...file, fingerprint, isSame: false, knownFault }
  } catch (error) {
    rmSync(target, { force: true })
    throw error
  } finally {
    snapshot.close()
  }
}

/** Turns an error in reading the database into DamagedCopy: the disk of the copy has no fault. */
function damagedSource(error: unknown): never {
  if (isFileFault(error)) {
    const { cause } = error
    const reason = cause instanceof Error ? cause.message : error.message
    throw new DamagedCopy(`the database cannot be read: ${reason}`, { cause })
  }
  throw error
}

/** @throws DamagedCopy */
async function verifiedCopy(
  copies: EngineCopies,
  target: string,
  facts: CopyFacts,
): Promise<FileHash & Pick<CheckedCopy, 'damage'>> {
  const checked = await copies.checkCopy(target).catch((cause: Error) => {
    throw new DamagedCopy(cause.message, { cause })
  })
  for (const [name, value] of Object.entries(facts)) {
    const copied = checked.facts[name as keyof CopyFacts]
    if (copied !== value)
      throw new DamagedCopy(`${name} is ${copied} in the copy, and ${value} in the database`)
  }
  return { ...hashFile(target), damage: checked.damage }
}

function linkedCopy(known: KnownCopy, fingerprint: string | null): FinishedCopy {
  const { facts, bytes, sha256, damage } = known
  return { facts, bytes, sha256, damage, fingerprint, isSame: true, knownFault: null }
}

/** What is wrong with an earlier copy, judged by its bytes; null if nothing is. */
function faultOf(known: KnownCopy): string | null {
  try {
    const { bytes, sha256 } = hashFile(known.path)
    if (bytes !== known.bytes) return `it has ${bytes} bytes, and had ${known.bytes}`
    return sha256 === known.sha256 ? null : 'its bytes have changed'
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'it is missing' : (error as Error).message
  }
}

/** Makes a hard link. Returns false on a file system without hard links, or with too many; the caller then copies. */
function tryLink(from: string, to: string): boolean {
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
  const minFree = floor ?? defaultFloor(total)
  if (free - bytes >= minFree) return
  const inMb = (count: number) => `${Math.ceil(count / 1_000_000)} MB`
  throw new CouchError(
    'insufficient_storage',
    `The disk of the backups has ${inMb(free)} left: the next copy takes ${inMb(bytes)}, and ${inMb(minFree)} ` +
      '(settee/free_space_floor) stay free.',
  )
}

/**
 * Checks a copy of the server's own data.
 * @throws Error when it belongs to another server or is damaged; the file system's error
 */
async function checkCatalog(copies: EngineCopies, path: string, folderUuid: string): Promise<FileHash> {
  const found = await copies.checkCatalogCopy(path)
  if (found !== folderUuid) throw new Error(`the copy of the catalog is of the server ${found}`)
  return hashFile(path)
}

/** Hashes a whole file. @throws the file system's error */
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
  let reported = from - 1
  return ({ done, total }: CopyProgress) => {
    const percent = Math.floor(from + ((to - from) * done) / Math.max(total, 1))
    if (percent <= reported) return
    reported = percent
    onProgress({ percent })
  }
}

type ServedEngine = Pick<StorageEngine, 'copies' | 'checkDatabase' | 'checkServer'>

/** About how long a step of a check takes, in ms. After each one the check may end, or its progress is stored. */
const STEP_MS = 1000

/** As for nice(1). */
const NICENESS = 10

/** Serves a port until the thread is terminated, one request at a time. */
export function serveCopies(port: MessagePort, engine: ServedEngine): void {
  lowerPriority()
  const rpc = new RpcServer<ProgressEvent>(port)
  // A job blocks its thread for long, so its progress is posted at once instead of at the end of the turn.
  const onProgress = (progress: JobProgress) => {
    rpc.sendEvent({ type: 'progress', progress })
    rpc.flush()
  }
  let last: Promise<unknown> = Promise.resolve()
  port.on('message', (requests: readonly CopyRequest[]) => {
    for (const request of requests) {
      const result = last.then(() => work(request, engine, onProgress))
      last = result.catch(() => undefined)
      rpc.answer(request.call, result)
    }
  })
}

/** Handles a request. Damage is an answer, because an error would lose its class on the way. */
async function work(
  request: CopyRequest,
  engine: ServedEngine,
  onProgress: (progress: JobProgress) => void,
): Promise<
  FileHash | FinishedCopy | CheckStep | FoundRevision | Uint8Array | DamageAnswer | string | number | null
> {
  if (request.type === 'check') return engine.checkDatabase(request.database, request.from, STEP_MS)
  if (request.type === 'server') return (await engine.checkServer?.()) ?? null
  if (request.type === 'find') return findRevision(copiesOf(engine), request.sought)
  if (request.type === 'content') return findContent(copiesOf(engine), request.database, request.sought)
  if (request.type === 'piece') return readPiece(copiesOf(engine), request.piece)
  try {
    const copies = copiesOf(engine)
    if (request.type === 'catalog') return await checkCatalog(copies, request.path, request.folderUuid)
    if (request.type === 'same') return await reuseIfUnwritten(copies, request.job)
    return await copyDatabase(copies, request.job, onProgress)
  } catch (error) {
    if (error instanceof DamagedCopy) return { damagedBecause: error.message }
    throw error
  }
}

/** Only on Linux: elsewhere a priority applies to the whole process. */
function lowerPriority(): void {
  if (platform !== 'linux') return
  try {
    setPriority(0, NICENESS)
  } catch {
    // Not permitted. The thread also pauses while it reads (Throttle).
  }
}
