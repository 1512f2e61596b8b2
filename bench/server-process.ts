/** Servers that the bench starts, each in a separate process and folder. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { type Peer, peerAt } from './peer.ts'

export interface Command {
  readonly name: string
  readonly durability: string
  /** The arguments of Node, for an empty folder. */
  readonly args: (folder: string) => readonly string[]
  /** Added to the present environment. */
  readonly env: Readonly<Record<string, string>>
  /** Finds the server's address in its output so far; undefined while the server is not ready. */
  readonly address: (printed: string) => string | undefined
}

/** The time in milliseconds after which a server that is not ready is ended. */
const START_TIMEOUT_MS = 30_000

/**
 * Starts a server with Node.
 * @throws when it ends before it is ready
 */
export async function startServer({ name, durability, args, env, address }: Command): Promise<Peer> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
  const since = performance.now()
  const child = spawn(process.execPath, args(folder), {
    cwd: folder,
    env: { ...process.env, NODE_OPTIONS: '', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'close')
  const late = setTimeout(() => child.kill('SIGKILL'), START_TIMEOUT_MS)
  const stop = async () => {
    clearTimeout(late)
    child.kill('SIGTERM')
    await ended
    await rm(folder, { recursive: true, force: true })
  }
  try {
    const url = await readyAddress(child, name, address)
    clearTimeout(late)
    await (await fetch(new URL(url).origin)).text()
    const startMs = performance.now() - since
    return peerAt(name, url, { durability, pid: child.pid as number, startMs, stop })
  } catch (error) {
    await stop()
    throw error
  }
}

async function readyAddress(
  child: ChildProcess,
  name: string,
  addressIn: Command['address'],
): Promise<string> {
  let text = ''
  const printed = (child.stdout as Readable).iterator({ destroyOnReturn: false })
  for await (const chunk of printed as AsyncIterable<Buffer>) {
    text += chunk.toString()
    const address = addressIn(text)
    if (address === undefined) continue
    // Unread output would fill the pipe.
    child.stdout?.resume()
    return address
  }
  throw new Error(`${name} ended before it was ready: ${text}`)
}
