import { once } from 'node:events'
import { connect } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { brotliDecompressSync, createGunzip, gunzipSync } from 'node:zlib'
import { type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { CouchError } from '../../src/core/errors.ts'
import { chooseEncoding, makeEncoder } from '../../src/http/transport/compression.ts'
import { openStream, type ResponseStream, sendStream } from '../../src/http/transport/json-stream.ts'

type Answer = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

async function serve(t: Test, answer: Answer, log?: string[]): Promise<string> {
  const logger = log !== undefined && { stream: { write: (line: string) => void log.push(line) } }
  const app = fastify({ forceCloseConnections: true, logger })
  app.addHook('onRequest', async (_, reply) => {
    reply.header('X-From-Hook', 'yes')
  })
  app.get('/', async (request, reply) => answer(request, reply))
  t.teardown(() => app.close())
  return app.listen({ port: 0, host: '127.0.0.1' })
}

const bytes = (text: string) => Buffer.from(text)

function signal() {
  let give = () => {}
  const given = new Promise<void>((resolve) => {
    give = resolve
  })
  return { given, give: () => give() }
}

async function* pieces(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield bytes(text)
}

function answerWith(...texts: string[]): Answer {
  return (request, reply) => sendStream(request, reply, { status: 201, chunks: pieces(...texts) })
}

t.test('chooseEncoding', async (t) => {
  const cases: [header: string | undefined, waits: boolean, encoding: string | null][] = [
    [undefined, false, null],
    ['', false, null],
    ['identity', false, null],
    ['gzip, deflate', false, 'gzip'],
    ['GZip', true, 'gzip'],
    ['gzip, deflate, br', false, 'gzip'],
    ['gzip;q=0.5, br', false, 'br'],
    ['gzip;q=0.5, br', true, 'gzip'],
    ['br', false, 'br'],
    ['br', true, null],
    ['gzip;q=0', false, null],
    ['*', false, 'gzip'],
    ['gzip;q=0, *', false, 'br'],
    ['gzip;q=rubbish', false, null],
  ]
  for (const [header, waits, encoding] of cases) t.equal(chooseEncoding(header, waits), encoding, `${header}`)
})

t.test('gzip made of pieces is one valid member', async (t) => {
  const encoder = makeEncoder('gzip')
  const texts = ['{"results":[\n', '\n', 'ä'.repeat(100_000), '', 'end']
  const sent = [encoder.head]
  for (const text of texts) sent.push(await encoder.encode(bytes(text)))
  sent.push(await encoder.finish())
  t.equal(gunzipSync(Buffer.concat(sent)).toString(), texts.join(''))
  const empty = makeEncoder('gzip')
  t.equal(gunzipSync(Buffer.concat([empty.head, await empty.finish()])).length, 0)
})

t.test('each piece can be decoded at once', async (t) => {
  const encoder = makeEncoder('gzip')
  const reader = createGunzip()
  let read = ''
  reader.on('data', (chunk: Buffer) => {
    read += chunk.toString()
  })
  reader.write(encoder.head)
  for (const text of ['one\n', 'two\n']) {
    reader.write(await encoder.encode(bytes(text)))
    await once(reader, 'data')
    t.ok(read.endsWith(text))
  }
  reader.destroy()
})

t.test('the same bytes are compressed once', async (t) => {
  const page = bytes('x'.repeat(50_000))
  const [a, b] = [makeEncoder('gzip'), makeEncoder('gzip')]
  await b.encode(bytes('before'))
  t.equal(await a.encode(page), await b.encode(page))
})

t.test('head, hooks and body', async (t) => {
  const url = await serve(t, answerWith('{"a":', '', '1}\n'))
  const { statusCode, headers, body } = await request(url)
  t.equal(statusCode, 201)
  t.match(headers, { 'x-from-hook': 'yes', vary: 'Accept-Encoding', 'transfer-encoding': 'chunked' })
  t.notOk(headers['content-encoding'])
  t.equal(await body.text(), '{"a":1}\n')
})

/** Chunks that are known to be at their end with the last one, as a database's thread sends them. */
function wholePieces(...texts: string[]) {
  const left = [...texts]
  return {
    get isAtEnd() {
      return left.length === 0
    },
    async next(): Promise<IteratorResult<Uint8Array>> {
      const text = left.shift()
      return text === undefined ? { done: true, value: undefined } : { done: false, value: bytes(text) }
    },
    [Symbol.asyncIterator]() {
      return this
    },
  }
}

t.test('an answer of one short chunk has a length, and is not compressed below 1 kB', async (t) => {
  const ofTexts = (...texts: string[]) =>
    serve(t, (request, reply) =>
      sendStream(request, reply, { status: 200, isOftenShort: true, chunks: wholePieces(...texts) }),
    )
  const gzip = { headers: { 'accept-encoding': 'gzip' } }
  const short = await ofTexts('{"é":1}\n')
  for (const options of [{}, gzip]) {
    const { headers, body } = await request(short, options)
    t.match(headers, { 'content-length': '9', vary: 'Accept-Encoding' })
    t.notOk(headers['transfer-encoding'] ?? headers['content-encoding'])
    t.equal(await body.text(), '{"é":1}\n')
  }
  const head = await request(short, { method: 'HEAD' })
  t.notOk(head.headers['content-length'])
  await head.body.dump()
  const middle = await request(await ofTexts('x'.repeat(2000)), gzip)
  t.match(middle.headers, { 'content-encoding': 'gzip', 'transfer-encoding': 'chunked' })
  t.equal(gunzipSync(Buffer.from(await middle.body.arrayBuffer())).length, 2000)
  for (const texts of [['x'.repeat(20_000)], ['{', '}']]) {
    const { headers, body } = await request(await ofTexts(...texts))
    t.match(headers, { 'transfer-encoding': 'chunked' })
    t.equal(await body.text(), texts.join(''))
  }
})

t.test('compressed answers', async (t) => {
  const long = 'y'.repeat(200_000)
  const url = await serve(t, answerWith('[', long, ']'))
  for (const [encoding, decode] of [
    ['gzip', gunzipSync],
    ['br', brotliDecompressSync],
  ] as const) {
    const { headers, body } = await request(url, { headers: { 'accept-encoding': encoding } })
    t.equal(headers['content-encoding'], encoding)
    const raw = Buffer.from(await body.arrayBuffer())
    t.ok(raw.length < 5000)
    t.equal(decode(raw).toString(), `[${long}]`)
  }
})

t.test('a strong ETag becomes weak, and Vary is added to', async (t) => {
  const url = await serve(t, (request, reply) => {
    reply.header('Vary', 'Origin')
    return sendStream(request, reply, { status: 200, headers: { ETag: '"x"' }, chunks: pieces('a') })
  })
  const plain = await request(url)
  const packed = await request(url, { headers: { 'accept-encoding': 'gzip' } })
  t.match(plain.headers, { etag: '"x"', vary: 'Origin, Accept-Encoding' })
  t.match(packed.headers, { etag: 'W/"x"' })
  await Promise.all([plain.body.dump(), packed.body.dump()])
})

t.test('an error before the first piece gets a proper answer', async (t) => {
  const url = await serve(t, (request, reply) => {
    const next = () => Promise.reject(Object.assign(new Error('refused'), { statusCode: 403 }))
    return sendStream(request, reply, { status: 200, chunks: { [Symbol.asyncIterator]: () => ({ next }) } })
  })
  const { statusCode, body } = await request(url)
  t.equal(statusCode, 403)
  await body.dump()
})

t.test('an error after the first piece breaks the connection', async (t) => {
  const url = await serve(t, (request, reply) => {
    const chunks = (async function* () {
      yield bytes('[1,')
      await turn()
      throw new Error('disk')
    })()
    return sendStream(request, reply, { status: 200, chunks })
  })
  const { statusCode, body } = await request(url)
  t.equal(statusCode, 200)
  await t.rejects(body.text())
})

t.test('HEAD gets only the head', async (t) => {
  let returned = false
  const url = await serve(t, (request, reply) => {
    const chunks = (async function* () {
      try {
        yield bytes('[]')
        yield bytes('never')
      } finally {
        returned = true
      }
    })()
    return sendStream(request, reply, { status: 200, chunks })
  })
  const { statusCode, headers, body } = await request(url, { method: 'HEAD' })
  t.equal(statusCode, 200)
  t.equal(headers['x-from-hook'], 'yes')
  t.equal(await body.text(), '')
  t.ok(returned)
})

t.test('the head is sent at once, even before the first piece', async (t) => {
  let stream: ResponseStream | undefined
  const url = await serve(t, async (request, reply) => {
    stream = openStream(request, reply, { status: 200, waits: true })
  })
  const { statusCode, body } = await request(url)
  t.equal(statusCode, 200)
  await stream?.write(bytes('later'))
  await stream?.end()
  t.equal(await body.text(), 'later')
})

t.test('a client that leaves ends the iterator, even while it waits', async (t) => {
  const returned = signal()
  const url = await serve(t, (request, reply) => {
    let asked = 0
    const iterator: AsyncIterator<Uint8Array> = {
      next: () => (asked++ === 0 ? Promise.resolve({ value: bytes('[') }) : new Promise(() => {})),
      return: async () => {
        returned.give()
        return { done: true, value: undefined }
      },
    }
    void sendStream(request, reply, { status: 200, chunks: { [Symbol.asyncIterator]: () => iterator } })
    return new Promise(() => {})
  })
  const { body } = await request(url)
  body.on('error', () => {})
  body.destroy()
  await returned.given
})

t.test('the same for a pipelined answer that waits for its turn', async (t) => {
  const opened: ResponseStream[] = []
  const both = signal()
  const url = await serve(t, async (request, reply) => {
    opened.push(openStream(request, reply, { status: 200, waits: true }))
    if (opened.length === 2) both.give()
    await new Promise(() => {})
  })
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(2))
  await both.given
  const gone = opened.map(({ signal }) => once(signal, 'abort'))
  socket.destroy()
  await Promise.all(gone)
})

t.test('a slow reader slows its stream down', async (t) => {
  let made = 0
  const stopped = signal()
  const url = await serve(t, (request, reply) => {
    const chunks = (async function* () {
      try {
        for (;;) {
          made++
          yield new Uint8Array(65_536)
        }
      } finally {
        stopped.give()
      }
    })()
    return sendStream(request, reply, { status: 200, chunks })
  })
  const { port } = new URL(url)
  const socket = connect(Number(port), '127.0.0.1')
  socket.pause()
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
  let before = -1
  while (made !== before || made === 0) {
    before = made
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  t.ok(made < 1000, `${made} pieces were made for a reader that takes none`)
  socket.destroy()
  await stopped.given
})

t.test('a broken answer is logged once, as an error only if it is one', async (t) => {
  const log: string[] = []
  const causes = [new CouchError('no_database'), new CouchError('function_error'), new Error('unforeseen')]
  async function* broken(cause: unknown): AsyncGenerator<Uint8Array> {
    yield bytes('begun')
    throw cause
  }
  const answer: Answer = (request, reply) =>
    sendStream(request, reply, { status: 200, chunks: broken(causes.shift()) })
  const url = await serve(t, answer, log)
  for (let times = causes.length; times > 0; times--) {
    await t.rejects(request(`${url}/?secret=1`).then(({ body }) => body.text()))
  }
  const lines = log.map(
    (line) => JSON.parse(line) as { level: number; msg: string; route: string; id: string },
  )
  const breaks = lines.filter(({ msg }) => msg === 'an answer broke off while it was sent')
  t.strictSame(
    breaks.map(({ level }) => level),
    [40, 50, 50],
  )
  t.match(breaks, Array(3).fill({ id: /^req-/, method: 'GET', route: '/' }))
})

t.test('bytes stay until they are written', async (t) => {
  const both = signal()
  async function* letter(text: string): AsyncGenerator<Uint8Array> {
    await both.given
    yield bytes(text.repeat(20_000))
  }
  let asked = 0
  const url = await serve(t, async (request, reply) => {
    asked++
    // In the turn in which both write; the second must wait for the first, and tells it so by 'drain'.
    if (asked === 2) setImmediate(both.give)
    const [text, asIs] = asked === 1 ? (['y', true] as const) : (['z', false] as const)
    await sendStream(request, reply, { status: 200, asIs, chunks: letter(text) })
  })
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  t.teardown(() => socket.destroy())
  let text = ''
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1')
  })
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
  while (text.split('\r\n0\r\n\r\n').length < 3) await turn()
  t.ok(text.includes('y'.repeat(20_000)))
  t.ok(text.includes('z'.repeat(20_000)))
})

t.test('short and long pieces are valid chunks, whatever their bytes', async (t) => {
  const short = Buffer.from(Uint8Array.from({ length: 256 }, (_, byte) => byte))
  const long = Buffer.alloc(40_000, 'l')
  const sent = [short, long, Buffer.from('ä€\n'), short]
  const url = await serve(t, async (request, reply) => {
    const stream = openStream(request, reply, { status: 200 })
    for (const piece of sent) await stream.write(piece)
    await stream.end()
  })
  const { port } = new URL(url)
  const socket = connect(Number(port), '127.0.0.1')
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
  const raw: Buffer[] = []
  for await (const part of socket) raw.push(part as Buffer)
  const answer = Buffer.concat(raw)
  const body = answer.subarray(answer.indexOf('\r\n\r\n') + 4)
  const framed = sent.flatMap((piece) => [`${piece.length.toString(16)}\r\n`, piece, '\r\n'])
  t.same(body, Buffer.concat([...framed, '0\r\n\r\n'].map((part) => Buffer.from(part as string))))
})

t.test('HTTP/1.0 clients get pieces without chunks', async (t) => {
  const { port } = new URL(await serve(t, answerWith('a', 'b\n')))
  const socket = connect(Number(port), '127.0.0.1')
  socket.write('GET / HTTP/1.0\r\n\r\n')
  let text = ''
  for await (const part of socket) text += part
  t.equal(text.slice(text.indexOf('\r\n\r\n') + 4), 'ab\n')
})

t.test(
  'an answer that breaks off is not taken for a whole one, also where it ends with its connection',
  async (t) => {
    const url = await serve(t, (request, reply) => {
      async function* chunks(): AsyncGenerator<Uint8Array> {
        yield bytes('[1')
        await turn()
        throw new CouchError('disk_fault')
      }
      return sendStream(request, reply, { status: 200, chunks: chunks() })
    })
    for (const version of ['1.0', '1.1']) {
      const socket = connect(Number(new URL(url).port), '127.0.0.1')
      let received = ''
      socket.on('data', (data) => {
        received += data.toString('latin1')
      })
      let fault: NodeJS.ErrnoException | undefined
      socket.on('error', (error) => {
        fault = error
      })
      socket.write(`GET / HTTP/${version}\r\nHost: a\r\n\r\n`)
      await new Promise((resolve) => socket.on('close', resolve))
      if (version === '1.0') t.match(fault, { code: 'ECONNRESET' })
      else t.notMatch(received, /\r\n0\r\n/, 'the last chunk is missing')
    }
  },
)
