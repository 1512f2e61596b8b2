/** Clients of a few documents, a fault in their midst, and what each of them saw. */
import { randomBytes, randomInt } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { type Client, type Got, Unanswered } from '../kill/client.ts'
import type { Action, Operation, Value } from './register.ts'

const CLIENTS = 10
export const DOCUMENTS = 5
/** Answers before the fault, and after it. */
const BEFORE = 150
const AFTER = 150

/** By status; 404: what is to be deleted is deleted already. */
const OUTCOMES: Readonly<Record<number, 'done' | 'refused'>> = {
  200: 'done',
  201: 'done',
  404: 'refused',
  409: 'refused',
}

/** What a client knows of a document. */
interface Known {
  readonly value: Value
  readonly rev: string | null
}

/** What became of one round. */
export class History {
  readonly #client: Client
  readonly #round: number
  /** In the order of the answers. */
  readonly byDocument = new Map<string, Operation[]>()
  #answered = 0
  #isOver = false

  constructor(client: Client, round: number) {
    this.#client = client
    this.#round = round
    for (let n = 0; n < DOCUMENTS; n++) this.byDocument.set(`round-${round}-${n}`, [])
  }

  /** @param fault happens after {@link BEFORE} answers; as many are awaited after it */
  async run(fault: () => Promise<unknown>): Promise<void> {
    const clients = Array.from({ length: CLIENTS }, () => this.#work())
    await this.#untilAnswered(BEFORE)
    await fault()
    await this.#untilAnswered(this.#answered + AFTER)
    this.#isOver = true
    await Promise.all(clients)
  }

  async #untilAnswered(count: number): Promise<void> {
    while (this.#answered < count) await delay(1)
  }

  async #work(): Promise<void> {
    const known = new Map<string, Known>()
    while (!this.#isOver) {
      const id = `round-${this.#round}-${randomInt(DOCUMENTS)}`
      const seen = known.get(id)
      const isRead = seen === undefined || Math.random() < 0.4
      const now = isRead ? await this.#read(id) : await this.#write(id, seen)
      // Who has no answer, or is refused, looks again; or, now and then, goes on with what is stale.
      if (now !== null) known.set(id, now)
      else if (Math.random() < 0.8) known.delete(id)
    }
  }

  async #read(id: string): Promise<Known | null> {
    const invoked = performance.now()
    const got = await this.#ask('GET', `/notes/${id}`)
    if (got === null) return null
    if (got.status !== 200 && got.status !== 404) throw new Error(`GET ${id}: ${got.status}`)
    const known =
      got.status === 404 ? { value: null, rev: null } : { value: got.json.value, rev: got.json._rev }
    this.#note(id, invoked, { type: 'read', saw: known.value })
    return known
  }

  async #write(id: string, { value: over, rev }: Known): Promise<Known | null> {
    const invoked = performance.now()
    const isDeletion = over !== null && Math.random() < 0.2
    const value = isDeletion ? null : randomBytes(8).toString('hex')
    const got = isDeletion
      ? await this.#ask('DELETE', `/notes/${id}?rev=${rev}`)
      : await this.#ask('PUT', `/notes/${id}`, { value, ...(rev !== null && { _rev: rev }) })
    const outcome = got === null ? 'unknown' : OUTCOMES[got.status]
    if (outcome === undefined) throw new Error(`${id}: ${got?.status} ${got?.bytes}`)
    this.#note(id, invoked, { type: 'write', over, value, outcome })
    return outcome === 'done' ? { value, rev: isDeletion ? null : got?.json.rev } : null
  }

  #note(id: string, invoked: number, action: Action): void {
    this.byDocument.get(id)?.push({ invoked, returned: performance.now(), action })
  }

  /** @returns null when the answer tells nothing: there is none, or 503 since the thread died with it */
  async #ask(method: string, path: string, body?: object): Promise<Got | null> {
    try {
      const got = await this.#client.write(method, path, body === undefined ? {} : { body })
      if (got.status === 503) return null
      this.#answered += 1
      return got
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error
      await delay(10)
      return null
    }
  }
}
