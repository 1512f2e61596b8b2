/** Reads answers off a connection, byte for byte as RFC 9112 has them, and refuses what is not so. */

export interface Answer {
  readonly status: number
  /** Names in lower case; of several of a name the last. */
  readonly headers: Readonly<Record<string, string>>
  /** Without the framing of chunks; still coded as `content-encoding` says. */
  readonly body: Buffer
  /** All of it came; false: the connection broke off before. */
  readonly isWhole: boolean
}

/** What came is no HTTP. */
export class MalformedAnswer extends Error {}

const STATUS_LINE = /^HTTP\/1\.1 ([1-5]\d\d) [\t\x20-\x7e\x80-\xff]*$/
const FIELD = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)$/
const MAX_HEAD = 100_000

interface Head {
  readonly status: number
  readonly headers: Record<string, string>
}

export class AnswerReader {
  #bytes: Buffer = Buffer.alloc(0)
  #head: Head | null = null
  /** Chunks whose framing has been taken off already. */
  #chunks: Buffer[] = []

  /** Whether an answer has begun. */
  get hasBegun(): boolean {
    return this.#head !== null || this.#bytes.length > 0
  }

  /** How far the answer has come, for people. */
  get progress(): string {
    const waiting = this.#bytes.toString('latin1', 0, 200)
    const chunks = this.#chunks.map(({ length }) => length)
    return `${JSON.stringify(this.#head)}, chunks ${chunks}, then ${this.#bytes.length} bytes ${JSON.stringify(waiting)}`
  }

  add(bytes: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes])
  }

  /**
   * The next answer, null when it is not whole yet.
   * @param method of the request that it answers
   * @throws MalformedAnswer
   */
  take(method: string): Answer | null {
    this.#head ??= this.#takeHead()
    if (this.#head === null) return null
    const { status, headers } = this.#head
    const body = this.#takeBody(method, this.#head)
    if (body === null) return null
    this.#head = null
    return { status, headers, body, isWhole: true }
  }

  /**
   * What there is of an answer when the connection has ended; null when nothing of it came.
   * @param isReset the connection was reset: then also what only its end delimits has broken off
   * @throws MalformedAnswer
   */
  rest(isReset: boolean): Answer | null {
    if (this.#head === null) {
      if (this.#bytes.length > 0) throw malformed('a head that broke off', this.#bytes)
      return null
    }
    const { status, headers } = this.#head
    const isFramed = 'content-length' in headers || 'transfer-encoding' in headers
    return {
      status,
      headers,
      body: Buffer.concat([...this.#chunks, this.#bytes]),
      isWhole: !isFramed && !isReset,
    }
  }

  #takeHead(): Head | null {
    for (;;) {
      const end = this.#bytes.indexOf('\r\n\r\n')
      if (end === -1 && this.#bytes.length < MAX_HEAD) return null
      if (end === -1) throw malformed('a head without an end', this.#bytes)
      const head = readHead(this.#bytes.subarray(0, end))
      this.#bytes = this.#bytes.subarray(end + 4)
      if (head.status >= 200) return head
    }
  }

  #takeBody(method: string, { status, headers }: Head): Buffer | null {
    // Without `Server` it answers to what is no HTTP, and so to no method.
    const isOfHead = method === 'HEAD' && 'server' in headers
    if (isOfHead || status === 204 || status === 304) return Buffer.alloc(0)
    if (headers['transfer-encoding'] !== undefined) return this.#takeChunks(headers)
    const length = headers['content-length']
    if (length === undefined) return null
    if (!/^\d+$/.test(length)) throw malformed(`Content-Length: ${length}`, this.#bytes)
    if (this.#bytes.length < Number(length)) return null
    const body = this.#bytes.subarray(0, Number(length))
    this.#bytes = this.#bytes.subarray(Number(length))
    return body
  }

  #takeChunks(headers: Readonly<Record<string, string>>): Buffer | null {
    if (headers['transfer-encoding'] !== 'chunked' || 'content-length' in headers) {
      throw malformed(`framed twice: ${JSON.stringify(headers)}`, this.#bytes)
    }
    for (;;) {
      const line = this.#bytes.indexOf('\r\n')
      if (line === -1) return null
      const text = this.#bytes.toString('latin1', 0, line)
      if (!/^[0-9a-f]+$/i.test(text)) throw malformed('the length of a chunk', this.#bytes)
      const end = line + 2 + Number.parseInt(text, 16)
      if (this.#bytes.length < end + 2) return null
      if (this.#bytes.toString('latin1', end, end + 2) !== '\r\n')
        throw malformed('the end of a chunk', this.#bytes)
      const chunk = this.#bytes.subarray(line + 2, end)
      this.#bytes = this.#bytes.subarray(end + 2)
      if (chunk.length === 0) return this.#whole()
      this.#chunks.push(chunk)
    }
  }

  #whole(): Buffer {
    const body = Buffer.concat(this.#chunks)
    this.#chunks = []
    return body
  }
}

function readHead(bytes: Buffer): Head {
  const [first = '', ...lines] = bytes.toString('latin1').split('\r\n')
  const status = STATUS_LINE.exec(first)?.[1]
  if (status === undefined) throw malformed('a status line', bytes)
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const [, name, value] = FIELD.exec(line) ?? []
    if (name === undefined) throw malformed(`a header field: ${line}`, bytes)
    headers[name.toLowerCase()] = value ?? ''
  }
  return { status: Number(status), headers }
}

function malformed(what: string, bytes: Buffer): MalformedAnswer {
  return new MalformedAnswer(`${what}: ${JSON.stringify(bytes.toString('latin1', 0, 300))}`)
}
