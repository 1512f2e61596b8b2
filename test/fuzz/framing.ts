/** How a request is put on the wire: how its body is told from what follows, and how it is coded. Seldom with a lie. */
import { gzipSync } from 'node:zlib'
import type { FuzzBody } from './bodies.ts'
import type { Choices } from './choices.ts'
import type { Header } from './headers.ts'
import { brokenGzip, mutated } from './mutations.ts'

const HOST = '127.0.0.1'

export interface Unframed {
  /** The pattern of the route. */
  readonly route: string
  readonly method: string
  readonly target: string
  readonly headers: readonly Header[]
  readonly body: FuzzBody | null
  /** It is about a vault. */
  readonly isVault: boolean
}

export interface Framing {
  readonly headers: readonly Header[]
  readonly bytes: Buffer
  readonly isSound: boolean
  readonly version?: string
}

/** Gives a body its header fields, if there is one. */
export function frame(choices: Choices, { body, isVault }: Unframed): Framing {
  if (body === null) {
    const headers: Header[] = choices.chance(0.02) ? [['Content-Length', '0']] : []
    return { headers, bytes: Buffer.alloc(0), isSound: true }
  }
  const { bytes, coding } = coded(choices, body)
  const type = typeOf(choices, body)
  const said: Header[] = type === null ? [...coding] : [...coding, ['Content-Type', type]]
  const length: Header = ['Content-Length', String(bytes.length)]
  switch (choices.weighted({ length: 90, chunked: 7, expecting: 1, odd: 2 })) {
    case 'length':
      return { headers: [...said, length], bytes, isSound: true }
    case 'chunked':
      return { headers: [...said, CHUNKED], bytes: chunked(choices, bytes), isSound: true }
    case 'expecting':
      return { headers: [...said, length, ['Expect', '100-continue']], bytes, isSound: true }
    case 'odd': {
      const { headers, ...more } = choices.pick(isVault ? FITTING_ODDITIES : ODDITIES)(bytes, choices)
      return { bytes, ...more, headers: [...said, ...headers], isSound: false }
    }
  }
}

const CHUNKED: Header = ['Transfer-Encoding', 'chunked']

type Oddity = (bytes: Buffer, choices: Choices) => Omit<Framing, 'isSound' | 'bytes'> & { bytes?: Buffer }

const withLength =
  (...more: readonly Header[]): Oddity =>
  ({ length }) => ({ headers: [['Content-Length', String(length)], ...more] })
const withFields =
  (...headers: readonly Header[]): Oddity =>
  () => ({ headers })

const FITTING_ODDITIES: readonly Oddity[] = [
  ({ length }) => ({ headers: [['Content-Length', String(length + 9)]] }),
  withFields(['Content-Length', '-1']),
  withFields(['Content-Length', '99999999999999999999']),
  withFields(['Content-Length', '5'], ['Content-Length', '6']),
  withFields(['Content-Length', '5'], CHUNKED),
  withFields(['Transfer-Encoding', 'gzip']),
  withFields(CHUNKED),
  (bytes, choices) => ({ headers: [CHUNKED], bytes: mutated(chunked(choices, bytes), choices) }),
  (bytes, choices) => ({ ...withLength()(bytes, choices), version: 'HTTP/1.0' }),
  (bytes, choices) => ({ ...withLength()(bytes, choices), version: 'HTTP/9.9' }),
  withLength(['X-Huge', 'x'.repeat(70_000)]),
  withLength(['Connection', 'close']),
  withLength(['X-Bad', 'a\u0001\u007f']),
]

/** What is left of a body is read as the next request: in a vault that shall be none. */
const ODDITIES: readonly Oddity[] = [
  ...FITTING_ODDITIES,
  ({ length }) => ({ headers: [['Content-Length', String(length >> 1)]] }),
  withFields(),
]

/** Four megabytes from next to nothing. */
const BOMB = gzipSync(Buffer.alloc(4_000_000, 0x20))
const PADDING = Buffer.alloc(1_200_000, 0x20)

function coded(choices: Choices, { bytes, isFixed }: FuzzBody): { bytes: Buffer; coding: readonly Header[] } {
  if (isFixed || choices.chance(0.94)) return { bytes, coding: [] }
  // More than all bodies together may take of memory.
  if (choices.chance(0.03)) return { bytes: Buffer.concat([bytes, PADDING]), coding: [] }
  const coding = (value: string): readonly Header[] => [['Content-Encoding', value]]
  const packed = gzipSync(bytes)
  return choices.pick([
    { bytes: packed, coding: coding('gzip') },
    { bytes: packed, coding: coding('GZIP ') },
    { bytes: brokenGzip(packed, choices), coding: coding('gzip') },
    { bytes, coding: coding('gzip') },
    { bytes: packed, coding: [] },
    { bytes, coding: coding(choices.pick(['deflate', 'br', 'identity', 'x', 'gzip, gzip'])) },
    { bytes: BOMB, coding: coding('gzip') },
  ])
}

function typeOf(choices: Choices, { type }: FuzzBody): string | null {
  if (choices.chance(0.95)) return type
  return choices.pick([
    null,
    'application/json; charset=utf-8',
    'APPLICATION/JSON',
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/related',
    'multipart/related; boundary=',
    'multipart/related; boundary=fuzz-boundary',
    'multipart/form-data; boundary="',
    'x',
    ';',
  ])
}

function chunked(choices: Choices, bytes: Buffer): Buffer {
  const pieces: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + choices.below(Math.max(20, bytes.length >> 1))
    const piece = bytes.subarray(at, at + size)
    pieces.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'))
    at += size
  }
  return Buffer.concat([...pieces, Buffer.from('0\r\n\r\n')])
}

/** The first line and the header fields. */
export function head(
  method: string,
  target: string,
  headers: readonly Header[],
  version = 'HTTP/1.1',
): Buffer {
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')
  return Buffer.from(`${method} ${target} ${version}\r\nHost: ${HOST}\r\n${lines}\r\n`, 'latin1')
}

/** What would end the first line, or is no ASCII, goes as an escape: HTTP has no word for it. */
export function wireTarget(target: string): string {
  return target.replace(/[^\x21-\x7e]+/gu, (odd) => encodeURIComponent(odd.toWellFormed()))
}
