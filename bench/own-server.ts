/** settee on a folder that outlives the process, for trials of starts and of recovery after a kill. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { type Peer, peerAt } from './peer.ts'
import { ADMIN_ENV, addressIn } from './settee.ts'

const MAIN = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))

export interface OwnServer {
  readonly peer: Peer
  /** Its address, without credentials. */
  readonly url: string
  /** Milliseconds from its start to its first answer. */
  readonly startMs: number
  end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>
}

/** Starts the built server, and waits for its first answer. @throws when it ends before that */
export async function startOn(folder: string): Promise<OwnServer> {
  const since = performance.now()
  const args = [MAIN, 'serve', '--port', '0', '--data', folder]
  const env = { ...process.env, NODE_OPTIONS: '', ...ADMIN_ENV }
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'close')
  let printed = ''
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.on('data', (chunk: Buffer) => {
      printed += chunk.toString()
      const address = addressIn(printed)
      if (address !== undefined) resolve(address)
    })
    ended.then(() => reject(new Error(`settee ended before it was ready: ${printed}`)), reject)
  })
  const { origin } = new URL(url)
  await (await fetch(origin)).text()
  const startMs = performance.now() - since
  const peer = peerAt('settee', url, {
    durability: 'fsync before every answer',
    pid: child.pid as number,
    stop: async () => undefined,
  })
  const end = async (signal: 'SIGTERM' | 'SIGKILL') => {
    child.kill(signal)
    await ended
    await peer.close()
  }
  return { peer, url: origin, startMs, end }
}
