/** Who reads while threads die: what he gets is whole, or he is told, or the connection breaks. Never less, and no lie. */
import { setTimeout as delay } from 'node:timers/promises'
import { type Agent, request } from 'undici'
import type { Tally } from './writers.ts'

interface ReadOptions {
  /** Of the list. */
  readonly url: string
  readonly agent: Agent
  readonly tally: Tally
}

/** Asks for a list again and again: an answer that ends in order has all that was acknowledged before it was asked. */
export async function listings(
  { url, agent, tally }: ReadOptions,
  acknowledged: ReadonlyMap<string, number>,
  isOver: () => boolean,
): Promise<void> {
  while (!isOver()) {
    const promised = [...acknowledged.keys()]
    const text = await textOf(url, agent, tally)
    if (text === null) continue
    const { rows, results = rows } = JSON.parse(text) as Record<string, { id: string }[]>
    const ids = new Set(results?.map(({ id }) => id))
    const missing = promised.filter((id) => !ids.has(id))
    if (missing.length > 0) tally.faults.push(`a listing lacks ${missing.slice(0, 3).join()}`)
  }
}

/** @returns null when it was refused, or broken off */
async function textOf(url: string, agent: Agent, tally: Tally): Promise<string | null> {
  try {
    const { statusCode, body } = await request(url, { dispatcher: agent })
    const text = await body.text()
    if (statusCode === 200) return text
    if (statusCode !== 503) tally.faults.push(`GET ${url}: ${statusCode} ${text.slice(0, 200)}`)
  } catch {
    // Broken off.
  }
  tally.refused += 1
  await delay(2)
  return null
}

/** A download that has begun and is read on later. */
export interface Download {
  /** @returns what came of the rest: its bytes if it ended in order; `broken` when the connection broke */
  rest(): Promise<Buffer | 'broken'>
}

/** Begins a download and reads its first bytes. @throws Error when it is refused */
export async function download(url: string, agent: Agent): Promise<Download> {
  const { statusCode, body } = await request(url, { dispatcher: agent })
  if (statusCode !== 200) throw new Error(`GET ${url}: ${statusCode}`)
  const chunks: Buffer[] = []
  const iterator = body[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  const next = async () => {
    const { value, done } = await iterator.next()
    if (!done) chunks.push(value)
    return !done
  }
  await next()
  return {
    rest: async () => {
      try {
        while (await next());
        return Buffer.concat(chunks)
      } catch {
        return 'broken'
      }
    },
  }
}
