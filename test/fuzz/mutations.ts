/** What goes wrong with a body that was right. */
import type { Choices } from './choices.ts'

type Mutation = (body: Buffer, choices: Choices) => Buffer

const BYTES: readonly Mutation[] = [
  (body, choices) => body.subarray(0, choices.below(body.length + 1)),
  (body, choices) => body.subarray(choices.below(body.length + 1)),
  flipped,
  (body, choices) => inserted(body, choices, Buffer.from([0])),
  (body, choices) => inserted(body, choices, Buffer.from([0xed, 0xa0, 0x80])),
  (body, choices) => inserted(body, choices, Buffer.from([0xff, 0xfe, 0xc0, 0x80])),
  (body, choices) => inserted(body, choices, choices.bytes(8)),
  (body) => Buffer.concat([body, body]),
  (body) => Buffer.concat([Buffer.from('\ufeff'), body]),
  (body) => Buffer.concat([Buffer.from(' \r\n\t'), body, Buffer.from('\n')]),
  doubled,
]

/** Of these each looks for a place in JSON text. */
const TEXT: readonly ((text: string, choices: Choices) => string)[] = [
  (text) => text.replace('{', '{"__proto__":{"polluted":true},'),
  (text) => text.replace('{', '{"constructor":{"prototype":{"polluted":1}},'),
  (text) => text.replace(/"(\w+)":/, '"$1":null,"$1":'),
  (text) => text.replace(/"([^"\\]*)"/, '"\\ud800$1"'),
  (text) => text.replace(/"([^"\\]*)"/, '"$1\\u0000"'),
  (text) => text.replace(/"([^"\\]*)":/, '"\\u005f$1":'),
  (text, choices) => atSomeValue(text, choices, choices.json()),
  (text, choices) => atSomeValue(text, choices, choices.edge()),
  (text, choices) =>
    atSomeValue(text, choices, choices.pick(['null', 'true', '[]', '{}', '""', '[[]]', '[null]'])),
  (text, choices) => atSomeValue(text, choices, JSON.stringify(choices.text())),
  (text, choices) => atSomeValue(text, choices, nested(choices.pick([5, 511, 513, 20_000]), choices)),
  (text) => text.replaceAll(':', ' :\n\t '),
  (text) => text.replace(/[}\]]/, ',$&'),
  (text) => text.replaceAll('"', "'"),
  (text) => text.replace(':', ''),
]

/** The body with one to three things wrong with it. */
export function mutated(body: Buffer, choices: Choices): Buffer {
  let bent = body
  for (let times = 1 + choices.below(choices.chance(0.2) ? 3 : 1); times > 0; times--)
    bent = once(bent, choices)
  return bent
}

function once(body: Buffer, choices: Choices): Buffer {
  if (choices.chance(0.5)) return choices.pick(BYTES)(body, choices)
  return Buffer.from(choices.pick(TEXT)(body.toString(), choices))
}

/** Bytes that are no gzip, though they begin as one. */
export function brokenGzip(packed: Buffer, choices: Choices): Buffer {
  return choices.pick([
    packed.subarray(0, choices.below(packed.length)),
    flipped(packed, choices),
    Buffer.concat([packed, Buffer.from('trailing')]),
    Buffer.concat([packed, packed]),
    Buffer.alloc(0),
  ])
}

function flipped(body: Buffer, choices: Choices): Buffer {
  const bent = Buffer.from(body)
  for (let times = 1 + choices.below(4); times > 0 && bent.length > 0; times--) {
    const at = choices.below(bent.length)
    bent[at] = (bent[at] as number) ^ (1 << choices.below(8))
  }
  return bent
}

function inserted(body: Buffer, choices: Choices, piece: Buffer): Buffer {
  const at = choices.below(body.length + 1)
  return Buffer.concat([body.subarray(0, at), piece, body.subarray(at)])
}

/** A stretch of it comes twice. */
function doubled(body: Buffer, choices: Choices): Buffer {
  const from = choices.below(body.length + 1)
  const to = from + choices.below(Math.min(200, body.length - from) + 1)
  return Buffer.concat([body.subarray(0, to), body.subarray(from)])
}

function atSomeValue(text: string, choices: Choices, value: string): string {
  const places = [
    ...text.matchAll(/(?<=[:[,]\s*)(?:"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null)(?=\s*[,}\]])/g),
  ]
  const place = choices.pick(places)
  if (place === undefined) return value
  return text.slice(0, place.index) + value + text.slice(place.index + place[0].length)
}

function nested(depth: number, choices: Choices): string {
  return choices.chance(0.5)
    ? '['.repeat(depth) + ']'.repeat(depth)
    : `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`
}
