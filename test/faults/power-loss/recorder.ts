/** Runs a process whose writes, syncs and changes of names below one folder are recorded (recorder.c). */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { cleanEnv, ROOT, WITHOUT_LOADERS } from '../../cli/child.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const SOURCE = fileURLToPath(new URL('recorder.c', import.meta.url))

/** One thing that a process did, or the mark that it left. */
export type RecordedEvent =
  | { readonly kind: 'open'; readonly file: number; readonly path: string; readonly flags: number }
  | { readonly kind: 'write'; readonly file: number; readonly at: number; readonly bytes: Buffer }
  | { readonly kind: 'truncate'; readonly file: number; readonly length: number }
  | { readonly kind: 'sync'; readonly file: number; readonly failed: boolean }
  | { readonly kind: 'rename' | 'link'; readonly path: string; readonly to: string }
  | { readonly kind: 'remove' | 'makeFolder'; readonly path: string }
  | { readonly kind: 'mark'; readonly text: string }

export interface Recorder {
  /** The folder whose files are recorded; it is there, and empty. */
  readonly folder: string
  /**
   * Runs a script until it ends, with `ROOT` and `MARK` as its first arguments.
   * @returns the exit code, or the signal that ended it
   */
  run(script: URL, ...args: readonly string[]): Promise<number | NodeJS.Signals>
  /** What was recorded so far, of all runs. */
  events(): Promise<RecordedEvent[]>
}

/** @throws Error in one line when there is no C compiler, or it does not compile recorder.c */
function compile(library: string): void {
  const compilers = [process.env.CC ?? 'cc', 'gcc', 'clang']
  for (const compiler of compilers) {
    const args = ['-O2', '-shared', '-fPIC', '-o', library, SOURCE, '-ldl', '-lpthread']
    const { status, stderr, error } = spawnSync(compiler, args, { encoding: 'utf8' })
    if (error !== undefined) continue
    if (status !== 0) throw new Error(`recorder.c cannot be compiled by ${compiler}: ${stderr}`)
    return
  }
  throw new Error(`the tests of power loss need a C compiler; there is none of ${compilers.join(', ')}`)
}

/** @param folder to be made, by an absolute path; who asks removes it */
export async function makeRecorder(t: Test, folder: string): Promise<Recorder> {
  const own = await temporaryFolder(t)
  const library = join(own, 'recorder.so')
  const log = join(own, 'log')
  const mark = join(own, 'mark')
  compile(library)
  await mkdir(folder, { mode: 0o700 })
  const run = async (script: URL, ...args: readonly string[]) => {
    const env = { LD_PRELOAD: library, RECORD_ROOT: folder, RECORD_LOG: log, RECORD_MARK: mark }
    const child = spawnRecorded(fileURLToPath(script), [folder, mark, ...args], env)
    t.teardown(() => child.kill('SIGKILL'))
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
    return code ?? (signal as NodeJS.Signals)
  }
  return { folder, run, events: async () => parseRecord(await readFile(log)) }
}

function spawnRecorded(script: string, args: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
  const [command, ...unset] = WITHOUT_LOADERS
  const node = [process.execPath, script, ...args]
  // io_uring would write past the library; libuv leaves it alone then.
  return spawn(command, [...unset, ...node], {
    cwd: ROOT,
    env: cleanEnv({ ...env, UV_USE_IO_URING: '0' }),
    stdio: ['ignore', 'inherit', 'inherit'],
  })
}

const HEAD_BYTES = 17

/** Reads what recorder.c has written. */
function parseRecord(log: Buffer): RecordedEvent[] {
  const events: RecordedEvent[] = []
  for (let at = 0; at < log.length; ) {
    const kind = log.toString('latin1', at, at + 1)
    const file = log.readUInt32LE(at + 1)
    const number = Number(log.readBigUInt64LE(at + 5))
    const bytes = log.subarray(at + HEAD_BYTES, at + HEAD_BYTES + log.readUInt32LE(at + 13))
    events.push(eventOf(kind, file, number, bytes))
    at += HEAD_BYTES + bytes.length
  }
  return events
}

function eventOf(kind: string, file: number, number: number, bytes: Buffer): RecordedEvent {
  const [path = '', to = ''] = kind === 'w' ? [] : bytes.toString().split('\0')
  switch (kind) {
    case 'o':
      return { kind: 'open', file, path, flags: number }
    case 'w':
      return { kind: 'write', file, at: number, bytes }
    case 't':
      return { kind: 'truncate', file, length: number }
    case 's':
    case 'f':
      return { kind: 'sync', file, failed: kind === 'f' }
    case 'r':
      return { kind: 'rename', path, to }
    case 'l':
      return { kind: 'link', path, to }
    case 'u':
      return { kind: 'remove', path }
    case 'd':
      return { kind: 'makeFolder', path }
    case 'm':
      return { kind: 'mark', text: bytes.toString() }
    default:
      throw new Error(`recorder.c wrote an event of an unknown kind: ${kind}`)
  }
}
