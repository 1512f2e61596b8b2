/** `settee export` and `settee import`: a database as a couchbackup file. */
import { once } from 'node:events'
import {
  chmodSync,
  createReadStream,
  createWriteStream,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
} from 'node:fs'
import { stat } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createGzip } from 'node:zlib'
import type { ExportOutcome, ImportOutcome, TransferProgress } from '../backup/transfers.ts'
import { CONTROL_FOLDER, MAX_PATH_BYTES } from '../control/control-socket.ts'
import { syncPath } from '../core/durable-files.ts'
import { oneLine } from '../core/errors.ts'
import { STANDARD, type TransferCommand } from './backup-arguments.ts'
import { dataFolder, withControl } from './operate.ts'
import { progressBar } from './progress-bar.ts'

type Named<Name> = Extract<TransferCommand, { readonly name: Name }>

/** @returns the exit code: 1 after a failure, which one line on standard error explains */
export async function runTransferCommand(command: TransferCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    return command.name === 'export' ? await exportTo(command, env) : await importFrom(command, env)
  } catch (error) {
    say(`settee: ${(error as Error).message}`)
    return 1
  }
}

/** Opens the file before root switches to the owner of the data folder, who may lack access to the file. */
async function exportTo({ database, to, data }: Named<'export'>, env: NodeJS.ProcessEnv): Promise<number> {
  const dataDir = dataFolder(data, env)
  const { documents, deleted, hasAttachments, gaps } = await exportFile(database, to, (work) =>
    withControl(dataDir, env, (controls) => work(controls, dataDir)),
  )
  say(`Exported the database ${database}: ${countsLine(documents, deleted)}.`)
  if (hasAttachments) say('It has attachments: couchrestore needs its option --attachments.')
  if (gaps === null) return 0
  say(`settee: ${oneLine(gaps)}`)
  return 1
}

/**
 * Exports a database into a new file, which is removed if that fails.
 * @param to the path of the file; `-` is standard output
 * @param operate gives the control of a server, once the file is open
 * @throws Error with a one-line message; CouchError
 */
export async function exportFile(
  database: string,
  to: string,
  operate: (work: (controls: Controls, dataDir: string) => Promise<ExportOutcome>) => Promise<ExportOutcome>,
): Promise<ExportOutcome> {
  const isFile = to !== STANDARD
  const { target, stopRemoval } = isFile
    ? openRemovable(to)
    : { target: process.stdout, stopRemoval: () => undefined }
  try {
    const outcome = await operate((controls, dataDir) =>
      transferOver<ExportOutcome>(controls, dataDir, {
        pump: (socket) => writeFrom(socket, target, to),
        run: (controls, socket, onProgress) => controls.exportDatabase({ database, socket }, onProgress),
      }),
    )
    if (isFile) await syncPath(to)
    return outcome
  } catch (error) {
    if (isFile) rmSync(to, { force: true })
    throw error
  } finally {
    stopRemoval()
  }
}

/** Creates a file that is removed at a signal. No signal is missed, because Node delivers signals in a later turn. */
function openRemovable(path: string): { readonly target: Writable; readonly stopRemoval: () => void } {
  const stopRemoval = removeOnSignal(path)
  try {
    return { target: createWriteStream('', { fd: openNew(path) }), stopRemoval }
  } catch (error) {
    stopRemoval()
    throw error
  }
}

const ENDING_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Removes an incomplete export at a signal. @returns a function that stops listening for signals */
function removeOnSignal(path: string): () => void {
  const removeAndEnd = (signal: NodeJS.Signals) => {
    rmSync(path, { force: true })
    stopRemoval()
    process.kill(process.pid, signal)
  }
  const stopRemoval = () => {
    for (const signal of ENDING_SIGNALS) process.removeListener(signal, removeAndEnd)
  }
  for (const signal of ENDING_SIGNALS) process.on(signal, removeAndEnd)
  return stopRemoval
}

function openNew(path: string): number {
  try {
    return openSync(path, 'wx', 0o600)
  } catch (error) {
    throw new Error(`${path} cannot be created (${(error as NodeJS.ErrnoException).code}).`, { cause: error })
  }
}

async function writeFrom(socket: Socket, target: Writable, name: string): Promise<void> {
  // Standard output stays open, because others may write to it.
  const end = target !== process.stdout
  if (name.endsWith('.gz')) await pipeline(socket, createGzip(), target, { end })
  else await pipeline(socket, target, { end })
}

async function importFrom(
  { database, from, merge, data }: Named<'import'>,
  env: NodeJS.ProcessEnv,
): Promise<number> {
  if (from === STANDARD && process.stdin.isTTY) throw new Error('Give the file to import with --from.')
  const outcome = await importFile({ database, from, merge, data }, env)
  const { isNew, documents, deleted, refused, refusals } = outcome
  say(`Imported into the ${isNew ? 'new ' : ''}database ${database}: ${countsLine(documents, deleted)}.`)
  if (refused === 0) return 0
  say(`${refused} revisions were refused${refused > refusals.length ? ', for example' : ''}:`)
  for (const refusal of refusals) say(`  ${refusal}`)
  return 1
}

/**
 * Imports one file, with a progress bar.
 * @throws Error with a one-line message; CouchError
 */
export async function importFile(
  { database, from, merge, data }: Omit<Named<'import'>, 'name'>,
  env: NodeJS.ProcessEnv,
): Promise<ImportOutcome> {
  const source = from === STANDARD ? process.stdin : createReadStream('', { fd: openOld(from) })
  const bytes = source === process.stdin || from.endsWith('.gz') ? null : (await stat(from)).size
  const dataDir = dataFolder(data, env)
  return withControl(dataDir, env, (controls) =>
    transferOver<ImportOutcome>(controls, dataDir, {
      bytes,
      pump: (socket) => sendTo(source, socket, from),
      run: (controls, socket, onProgress) => controls.importDatabase({ database, socket, merge }, onProgress),
    }),
  )
}

function openOld(path: string): number {
  try {
    return openSync(path, 'r')
  } catch (error) {
    throw new Error(`${path} cannot be read (${(error as NodeJS.ErrnoException).code}).`, { cause: error })
  }
}

async function sendTo(source: Readable, socket: Socket, name: string): Promise<void> {
  if (name.endsWith('.gz')) await pipeline(source, createGunzip(), socket)
  else await pipeline(source, socket)
}

interface Transfer<Outcome> {
  /** Size of the file in bytes; null: unknown. */
  readonly bytes?: number | null
  /** Moves the file's bytes between the file and the server. */
  pump(socket: Socket): Promise<void>
  run(controls: Controls, socket: string, onProgress: (progress: TransferProgress) => void): Promise<Outcome>
}

export type Controls = Parameters<Parameters<typeof withControl>[2]>[0]

/** Runs the command, and moves the bytes meanwhile. If both fail, throws the server's error, which says more. */
async function transferOver<Outcome>(
  controls: Controls,
  dataDir: string,
  { bytes = null, pump, run }: Transfer<Outcome>,
): Promise<Outcome> {
  const bar = progressBar(process.stderr)
  const onProgress = (progress: TransferProgress) => {
    const percent = bytes === null || bytes === 0 ? null : (100 * progress.bytes) / bytes
    bar.show(percent, `${(progress.bytes / 1_000_000).toFixed(1)} MB`)
  }
  const { path, connected, close } = await listenForOne(dataDir)
  try {
    const pumped = connected.then(pump)
    pumped.catch(() => undefined)
    const outcome = await Promise.race([run(controls, path, onProgress), failureOf(pumped)])
    await pumped
    return outcome
  } finally {
    bar.end()
    close()
  }
}

/** Rejects if the file cannot be read or written. A socket that the server closed is not a separate failure. */
function failureOf(pumped: Promise<void>): Promise<never> {
  return new Promise((_, reject) => {
    pumped.catch((error: NodeJS.ErrnoException) => {
      if (!SOCKET_FAULTS.has(error.code ?? '')) reject(error)
    })
  })
}

const SOCKET_FAULTS: ReadonlySet<string> = new Set(['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE'])

function countsLine(documents: number, deleted: number): string {
  return `${documents} documents, ${deleted} deleted documents`
}

/** Prints to standard error, because standard output may be the file. */
function say(line: string): void {
  console.error(oneLine(line))
}

/** The socket that carries the bytes of a file between a command and the server. */
interface TransferSocket {
  readonly path: string
  /** Resolves with the first connection; others are refused. */
  readonly connected: Promise<Socket>
  close(): void
}

/** @param dataDir absolute @throws Error if the socket cannot be created */
async function listenForOne(dataDir: string): Promise<TransferSocket> {
  const { path, remove } = socketPathFor(dataDir)
  const server = createServer({ allowHalfOpen: true })
  server.maxConnections = 1
  server.listen(path)
  await once(server, 'listening')
  const connected = once(server, 'connection').then(([socket]) => socket as Socket)
  let socket: Socket | undefined
  connected.then(
    (taken) => {
      socket = taken
    },
    () => undefined,
  )
  const close = () => {
    socket?.destroy()
    server.close()
    remove()
  }
  return { path, connected, close }
}

/**
 * Chooses the path of the socket: in the data folder, because a sandboxed server can reach no other. If that path is
 * too long for a socket, no server listens there either, and this process runs the command itself.
 */
function socketPathFor(dataDir: string): { readonly path: string; remove(): void } {
  const path = join(dataDir, CONTROL_FOLDER, `file-${process.pid}`)
  if (Buffer.byteLength(path) <= MAX_PATH_BYTES) {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    chmodSync(dirname(path), 0o700)
    rmSync(path, { force: true })
    return { path, remove: () => rmSync(path, { force: true }) }
  }
  const folder = mkdtempSync(join(tmpdir(), 'settee-'))
  return { path: join(folder, 'file'), remove: () => rmSync(folder, { recursive: true, force: true }) }
}
