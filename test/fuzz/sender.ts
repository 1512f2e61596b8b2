/** Sends requests over many connections at once, pipelined where they are sound, and gathers what comes back. */
import { connect, type Socket } from 'node:net'
import { type Answer, AnswerReader, MalformedAnswer } from './answer-reader.ts'
import type { FuzzRequest } from './requests.ts'

/** What became of a request. */
export interface Outcome {
  readonly request: FuzzRequest
  /** Of a request that spoils its connection there may be several, of one that is cut off none. */
  readonly answers: readonly Answer[]
  /** What was wrong on the wire. */
  readonly fault?: string
  /** Milliseconds from when it was its turn. */
  readonly ms: number
  /** It was sent more than once, since its connection ended before its answer. */
  readonly isRepeated?: true
  /** The client left before the end. */
  readonly hasLeft?: true
}

export interface SenderOptions {
  readonly port: number
  /** The next request; undefined when there is none any more. */
  next(): FuzzRequest | undefined
  done(outcome: Outcome): void
}

const LANES = 20
/** On each of these connections one request at a time, that may spoil it. */
const LONERS = 20
const PIPELINED = 8
/** Above what the slowest legitimate answer takes: a view whose map function runs into its time with each document. */
const MAX_MS = 120_000
const MAX_TRIES = 5
/** A lane is given up, in the midst of its answers, after so many. */
const LANE_LIFE = 3000

interface Waiting {
  readonly request: FuzzRequest
  readonly tries: number
}

/** Sends all there are; resolves when each has its outcome. */
export async function sendAll(options: SenderOptions): Promise<void> {
  const sender = new Sender(options)
  const lanes = Array.from({ length: LANES }, () => sender.runLane())
  const loners = Array.from({ length: LONERS }, () => sender.runLoner())
  await Promise.all([...lanes, ...loners])
}

class Sender {
  readonly #options: SenderOptions
  readonly #sound: Waiting[] = []
  readonly #unsound: Waiting[] = []
  #isExhausted = false
  /** Woken when there is something again for those who found nothing. */
  #idle: (() => void)[] = []
  #running = 0

  constructor(options: SenderOptions) {
    this.#options = options
  }

  /** Connections one after the other, each with sound requests in a row. */
  async runLane(): Promise<void> {
    for (;;) {
      const first = await this.#take('sound')
      if (first === undefined) return
      await this.#connectLane(first)
    }
  }

  async runLoner(): Promise<void> {
    for (;;) {
      const waiting = await this.#take('unsound')
      if (waiting === undefined) return
      this.#finish(await sendAlone(this.#options.port, waiting.request))
    }
  }

  #connectLane(first: Waiting): Promise<void> {
    return new Promise((resolve) => {
      const lane = new Lane(connect(this.#options.port, '127.0.0.1'), {
        next: () => this.#takeNow('sound'),
        done: (outcome) => this.#finish(outcome),
        ended: (left) => {
          for (const waiting of left) this.#again(waiting)
          resolve()
        },
      })
      lane.send(first)
    })
  }

  #again({ request, tries }: Waiting): void {
    if (tries >= MAX_TRIES) {
      this.#finish({ request, answers: [], fault: `its connection ended ${tries} times`, ms: 0 })
      return
    }
    this.#sound.push({ request, tries: tries + 1 })
    this.#running--
    this.#wake()
  }

  #finish(outcome: Outcome): void {
    this.#running--
    this.#options.done(outcome)
    this.#wake()
  }

  #wake(): void {
    const idle = this.#idle
    this.#idle = []
    for (const wake of idle) wake()
  }

  async #take(kind: 'sound' | 'unsound'): Promise<Waiting | undefined> {
    for (;;) {
      const waiting = this.#takeNow(kind)
      if (waiting !== undefined) return waiting
      if (this.#isExhausted && this.#running === 0 && this.#sound.length + this.#unsound.length === 0)
        return undefined
      await new Promise<void>((resolve) => this.#idle.push(resolve))
    }
  }

  /** Of the other kind at most so many are laid by as can be sent soon. */
  #takeNow(kind: 'sound' | 'unsound'): Waiting | undefined {
    const [own, other] = kind === 'sound' ? [this.#sound, this.#unsound] : [this.#unsound, this.#sound]
    while (own.length === 0 && other.length < LANES && !this.#isExhausted) {
      const request = this.#options.next()
      if (request === undefined) this.#isExhausted = true
      else if (request.isSound === (kind === 'sound')) own.push({ request, tries: 1 })
      else {
        other.push({ request, tries: 1 })
        this.#wake()
      }
    }
    const waiting = own.shift()
    if (waiting !== undefined) this.#running++
    return waiting
  }
}

interface LaneOptions {
  next(): Waiting | undefined
  done(outcome: Outcome): void
  /** @param left what has no answer, in order */
  ended(left: readonly Waiting[]): void
}

/** A connection with sound requests in a row. */
class Lane {
  readonly #socket: Socket
  readonly #options: LaneOptions
  readonly #reader = new AnswerReader()
  #waiting: Waiting[] = []
  #turnAt = performance.now()
  #answered = 0
  #timer: NodeJS.Timeout

  constructor(socket: Socket, options: LaneOptions) {
    this.#socket = socket
    this.#options = options
    this.#timer = setTimeout(() => this.#fail(`no answer in time: ${this.#reader.progress}`), MAX_MS)
    socket.on('data', (bytes: Buffer) => this.#read(bytes))
    socket.on('error', () => undefined)
    socket.on('close', (hasFailed) => this.#closed(hasFailed))
  }

  send(waiting: Waiting): void {
    this.#waiting.push(waiting)
    this.#socket.write(waiting.request.bytes)
  }

  #read(bytes: Buffer): void {
    this.#reader.add(bytes)
    try {
      this.#takeAnswers()
    } catch (error) {
      if (!(error instanceof MalformedAnswer)) throw error
      this.#fail(error.message)
    }
  }

  #takeAnswers(): void {
    for (;;) {
      const [head] = this.#waiting
      if (head === undefined) {
        if (this.#reader.hasBegun) throw new MalformedAnswer('an answer to nothing')
        break
      }
      const answer = this.#reader.take(head.request.method)
      if (answer === null) break
      this.#answer(head, [answer])
    }
    if (this.#answered < LANE_LIFE) this.#fill()
    else this.#socket.destroy()
  }

  #answer(head: Waiting, answers: readonly Answer[], fault?: string): void {
    this.#waiting.shift()
    const now = performance.now()
    const ms = now - this.#turnAt
    this.#turnAt = now
    this.#timer.refresh()
    this.#answered++
    const repeated = head.tries > 1 ? ({ isRepeated: true } as const) : {}
    this.#options.done({
      request: head.request,
      answers,
      ms,
      ...repeated,
      ...(fault !== undefined && { fault }),
    })
  }

  #fill(): void {
    while (this.#waiting.length < PIPELINED) {
      const next = this.#options.next()
      if (next === undefined) break
      this.send(next)
    }
    if (this.#waiting.length === 0) this.#socket.destroy()
  }

  #fail(fault: string): void {
    const [head] = this.#waiting
    if (head !== undefined) this.#answer(head, [], fault)
    this.#socket.destroy()
  }

  #closed(isReset: boolean): void {
    clearTimeout(this.#timer)
    const [head] = this.#waiting
    if (head !== undefined && this.#answered < LANE_LIFE) this.#breakOff(head, isReset)
    this.#options.ended(this.#waiting)
  }

  /** An answer that broke off is one; of those that had not begun each is asked for again. */
  #breakOff(head: Waiting, isReset: boolean): void {
    try {
      const answer = this.#reader.rest(isReset)
      if (answer !== null) this.#answer(head, [answer])
    } catch (error) {
      this.#answer(head, [], (error as Error).message)
    }
  }
}

/** Sends one request on a connection of its own, and takes whatever comes until the end. */
function sendAlone(port: number, request: FuzzRequest): Promise<Outcome> {
  return new Promise((resolve) => new Loner(connect(port, '127.0.0.1'), request, resolve))
}

/** Whatever waits for more of a request than there is gets no more, but an end, after so many milliseconds. */
const SILENCE_MS = 400
/** After an answer there may be another, to what was left over of the request. */
const AFTERMATH_MS = 15

class Loner {
  readonly #socket: Socket
  readonly #request: FuzzRequest
  readonly #reader = new AnswerReader()
  readonly #answers: Answer[] = []
  readonly #begun = performance.now()
  #fault: string | undefined
  #isLeaving = false
  #hasLeft = false
  readonly #late: NodeJS.Timeout
  /** Until the client ends its half of the connection, or, where the answer stays open, leaves. */
  #ending: NodeJS.Timeout | undefined

  constructor(socket: Socket, request: FuzzRequest, resolve: (outcome: Outcome) => void) {
    this.#socket = socket
    this.#request = request
    this.#late = setTimeout(() => this.#fail(`no end in time: ${this.#reader.progress}`), MAX_MS)
    if (!request.isHonest) this.#endIn(SILENCE_MS)
    socket.on('data', (bytes: Buffer) => this.#read(bytes))
    socket.on('error', () => undefined)
    socket.on('close', (hasFailed) => resolve(this.#outcome(hasFailed)))
    socket.write(request.bytes)
  }

  #read(bytes: Buffer): void {
    const { method, leavesAfter } = this.#request
    this.#reader.add(bytes)
    try {
      for (;;) {
        const answer = this.#reader.take(method)
        if (answer === null) break
        this.#answers.push(answer)
      }
    } catch (error) {
      this.#fail((error as Error).message)
      return
    }
    if (leavesAfter !== null) this.#leaveIn(leavesAfter)
    else if (this.#answers.length > 0) this.#endIn(AFTERMATH_MS)
  }

  #endIn(ms: number): void {
    clearTimeout(this.#ending)
    this.#ending = setTimeout(() => this.#socket.end(), ms)
  }

  #leaveIn(ms: number): void {
    if (this.#isLeaving) return
    this.#isLeaving = true
    clearTimeout(this.#ending)
    this.#ending = setTimeout(() => {
      this.#hasLeft = true
      this.#socket.destroy()
    }, ms)
  }

  #fail(fault: string): void {
    this.#fault ??= fault
    this.#socket.destroy()
  }

  #outcome(isReset: boolean): Outcome {
    clearTimeout(this.#late)
    clearTimeout(this.#ending)
    const rest = this.#fault === undefined ? this.#rest(isReset) : null
    if (rest !== null) this.#answers.push(rest)
    return {
      request: this.#request,
      answers: this.#answers,
      ms: performance.now() - this.#begun,
      ...(this.#fault !== undefined && { fault: this.#fault }),
      ...(this.#hasLeft && { hasLeft: true }),
    }
  }

  #rest(isReset: boolean): Answer | null {
    try {
      return this.#reader.rest(isReset)
    } catch (error) {
      this.#fault = (error as Error).message
      return null
    }
  }
}
