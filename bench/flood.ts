/**
 * A flood of one tenant's saves, in a separate process. Each of its many connections sends a save after each answer.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import { makeNotes, newDocument } from './seed.ts'

/** The target of the flood. */
export interface Target {
  readonly origin: string
  /** The path of a database. */
  readonly path: string
  readonly authorization: string
  readonly connections: number
}

export interface Flood {
  /** Ends the flood. @returns the number of answers by status */
  stop(): Promise<Readonly<Record<string, number>>>
}

/** @returns after the first answer */
export async function startFlood(target: Target): Promise<Flood> {
  const child = fork(fileURLToPath(import.meta.url), [JSON.stringify(target)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const ended = once(child, 'close')
  const message = async () => {
    const closed = ended.then(() => Promise.reject(new Error('the flood has ended by itself')))
    const [value] = (await Promise.race([once(child, 'message'), closed])) as [unknown]
    return value
  }
  await message()
  return { stop: () => stopped(child, message, ended) }
}

async function stopped(
  child: ChildProcess,
  message: () => Promise<unknown>,
  ended: Promise<unknown>,
): Promise<Readonly<Record<string, number>>> {
  const counts = message()
  child.send('stop')
  const result = (await counts) as Record<string, number>
  await ended
  return result
}

async function flood({ origin, path, authorization, connections }: Target): Promise<void> {
  const pool = new Pool(origin, { connections })
  const bodies = makeNotes(100).map(newDocument)
  const counts: Record<string, number> = {}
  let [sent, isOver] = [0, false]
  process.once('message', () => {
    isOver = true
  })
  const worker = async () => {
    while (!isOver) {
      const n = sent++
      const answer = await pool.request({
        method: 'PUT',
        path: `${path}/flood${n}`,
        headers: { authorization, 'content-type': 'application/json' },
        body: bodies[n % bodies.length] as string,
      })
      await answer.body.dump()
      counts[answer.statusCode] = (counts[answer.statusCode] ?? 0) + 1
      if (n === 0) process.send?.('begun')
    }
  }
  const workers = Array.from({ length: connections }, worker)
  await Promise.race([Promise.all(workers), once(process, 'message')])
  // Requests that the server delays are not awaited.
  await pool.destroy()
  await Promise.allSettled(workers)
  process.send?.(counts, () => process.disconnect())
}

const [target] = process.argv.slice(2)
if (process.argv[1] === fileURLToPath(import.meta.url) && target !== undefined) {
  await flood(JSON.parse(target) as Target)
}
