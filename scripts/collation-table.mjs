// Makes the table of collation elements: node scripts/collation-table.mjs FOLDER
//
// FOLDER holds FractionalUCA.txt and UnicodeData.txt of one release of ICU, source/data/unidata/ in its sources. Take the
// release that CouchDB's packages link (`collation_driver` of /_node/_local/_versions), now 72.1. The result is
// src/query/collation/collation-table.bin, which is committed. Another table changes the bytes of sort keys, so raise
// COLLATION_VERSION in src/query/collation/collation-table.ts with it: indexes are then built anew.
//
// Format of FractionalUCA.txt: Unicode Technical Standard 35, part 5. Format of the table: collation-table.ts.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants } from 'node:zlib'

const BLOCK = 64
const CODE_POINTS = 0x110000
const COMMON = 0x05
/** Kinds of entries that are more than one element with a common secondary weight; collation-table.ts. */
const IGNORED = 0x40
const EXPANSION = 0x41
const CONTRACTION = 0x42
const HANGUL = 0x43
const CONTINUES = 0x80
/** The first byte of Han primaries. The file reserves 7E to DF for them. */
const HAN_LEAD = 0x7e

const folder = process.argv[2]
if (folder === undefined) throw new Error('usage: node scripts/collation-table.mjs FOLDER')
const lines = readFileSync(join(folder, 'FractionalUCA.txt'), 'utf8').split('\n')
const unicodeData = readFileSync(join(folder, 'UnicodeData.txt'), 'utf8').split('\n')

function check(condition, message) {
  if (!condition) throw new Error(message)
}

// --- Han: ranks by radical and stroke, as ranges of code points in this order.

/** [first, length] */
const hanRanges = []
const hanRank = new Map()
for (const line of lines) {
  const order = /^\[radical [^=]*=[^:]*:(.*)\]$/.exec(line)?.[1]
  if (order === undefined) continue
  const points = [...order].map((character) => character.codePointAt(0))
  for (let i = 0; i < points.length; i++) {
    const first = points[i]
    const last = points[i + 1] === 0x2d ? points[i + 2] : first
    if (last !== first) i += 2
    hanRanges.push([first, last - first + 1])
    for (let point = first; point <= last; point++) hanRank.set(point, hanRank.size)
  }
}
const unified = lines.find((line) => line.startsWith('[Unified_Ideograph '))
for (const range of unified.slice(19, -1).split(' ')) {
  const [first, last = first] = range.split('..').map((hex) => Number.parseInt(hex, 16))
  for (let point = first; point <= last; point++)
    check(hanRank.has(point), `no radical: ${point.toString(16)}`)
}

function hanPrimary(point) {
  const rank = hanRank.get(point)
  const lead = HAN_LEAD + Math.floor(rank / 254 / 254)
  return (lead << 16) | (((Math.floor(rank / 254) % 254) + 2) << 8) | ((rank % 254) + 2)
}

// --- Elements: [primary of 3 bytes, secondary of 2 bytes, tertiary].

function weight(text, bytes) {
  const parts = text.trim().split(' ').filter(Boolean)
  check(parts.length <= bytes, `long weight: ${text}`)
  return parts.reduce((sum, hex, i) => sum | (Number.parseInt(hex, 16) << (8 * (bytes - 1 - i))), 0)
}

/**
 * Primary weights with a tertiary weight below the common one, which small hiragana have. Sort keys need the common one to
 * be the lowest. Tertiary weights are only compared where the primary weights are equal, so these get the common weight,
 * and those with the common weight the next one.
 */
const LOWER = 0x03
const primariesWithLower = new Set()
for (const line of lines) {
  if (/^[0-9A-F]/.test(line)) {
    for (const [, primary] of line.matchAll(/\[([0-9A-F ]+), 05, 03\]/g))
      primariesWithLower.add(weight(primary, 3))
  }
}

function shifted(primary, tertiary) {
  if (!primariesWithLower.has(primary)) return tertiary
  check(tertiary !== COMMON + 1, 'the next weight is free')
  if (tertiary === LOWER) return COMMON
  return tertiary === COMMON ? COMMON + 1 : tertiary
}

function element(text) {
  const parts = text.split(',')
  const han = /^U\+([0-9A-F]+)$/.exec(parts[0])
  const primary = han === null ? weight(parts[0], 3) : hanPrimary(Number.parseInt(han[1], 16))
  const secondary = parts.length === 3 ? weight(parts[1], 2) : COMMON << 8
  // The upper two bits have the case, which only tailored collations compare.
  const tertiary = shifted(primary, parts.length === 1 ? COMMON : weight(parts.at(-1), 1) & 0x3f)
  if (primary === 0 && secondary === 0) return undefined
  check(tertiary >= COMMON, `tertiary: ${text}`)
  // Sort keys leave out common weights at the end of a level, which needs this.
  check(
    primary !== 0 ? secondary >= COMMON << 8 && secondary < 0x8000 : secondary >= 0x8000,
    `secondary: ${text}`,
  )
  return [primary, secondary, tertiary]
}

/** Text of one or more code points -> elements. */
const mappings = new Map()
/** `a | b` maps b after a, which here is a contraction of both. */
const afterOthers = []
for (const line of lines) {
  const match = /^([0-9A-F |]+);\s*((?:\[[^\]]*\])+)/.exec(line)
  if (match === null) continue
  const [before, after] = match[1].split('|').map((part) => part.trim().split(' '))
  const points = [...before, ...(after ?? [])].map((hex) => Number.parseInt(hex, 16))
  // Names of groups for tools; ICU's collator has no such contractions.
  if (points.length > 1 && (points[0] === 0xfdd0 || points[0] === 0xfdd1)) continue
  const elements = [...match[2].matchAll(/\[([^\]]*)\]/g)].map(([, text]) => element(text)).filter(Boolean)
  if (after === undefined) mappings.set(points.join(), elements)
  else afterOthers.push([points, elements])
}
for (const [points, elements] of afterOthers) {
  mappings.set(points.join(), [...mappings.get(String(points[0])), ...elements])
}

// --- Combining classes of the first and the last character of the canonical decomposition.

const combining = new Map()
const decompositions = new Map()
for (const line of unicodeData) {
  const [hex, , , cc, , decomposition] = line.split(';')
  if (hex === '') continue
  const point = Number.parseInt(hex, 16)
  if (cc !== '0') combining.set(point, Number(cc))
  if (decomposition !== '' && !decomposition.startsWith('<')) {
    decompositions.set(
      point,
      decomposition.split(' ').map((part) => Number.parseInt(part, 16)),
    )
  }
}
const leadingClass = (point) => {
  const parts = decompositions.get(point)
  return parts === undefined ? (combining.get(point) ?? 0) : leadingClass(parts[0])
}
const trailingClass = (point) => {
  const parts = decompositions.get(point)
  return parts === undefined ? (combining.get(point) ?? 0) : trailingClass(parts.at(-1))
}
const marks = [...combining.keys(), ...decompositions.keys()]
  .filter((point) => leadingClass(point) !== 0)
  .sort((a, b) => a - b)

// --- Entries.

const elementWords = []
const secondaries = []
const expansionPlaces = new Map()

function entry(elements) {
  if (elements === undefined) return 0
  if (elements.length === 0) return IGNORED
  if (elements.length === 1 && elements[0][1] === COMMON << 8)
    return ((elements[0][0] << 8) | elements[0][2]) >>> 0
  const key = elements.join(';')
  if (!expansionPlaces.has(key)) {
    expansionPlaces.set(key, elementWords.length)
    for (const [primary, secondary, tertiary] of elements) {
      elementWords.push(((primary << 8) | tertiary) >>> 0)
      secondaries.push(secondary)
    }
  }
  const place = expansionPlaces.get(key)
  check(elements.length < 64 && place < 1 << 18, 'expansions')
  return ((place << 14) | (elements.length << 8) | EXPANSION) >>> 0
}

/** code point -> entry */
const entries = new Map()
/** The first code point of contractions -> the rest of each, as a tree of [entry, tree]. */
const contractions = new Map()
const continuing = new Set(marks)
for (const [text, elements] of mappings) {
  const [first, ...rest] = text.split(',').map(Number)
  if (rest.length === 0) {
    entries.set(first, entry(elements))
    continue
  }
  let tree = contractions.get(first) ?? contractions.set(first, new Map()).get(first)
  for (const [i, point] of rest.entries()) {
    continuing.add(point)
    const node = tree.get(point) ?? tree.set(point, { entry: 0, tree: new Map() }).get(point)
    if (i === rest.length - 1) node.entry = entry(elements)
    tree = node.tree
  }
}
for (let point = 0xac00; point <= 0xd7a3; point++) entries.set(point, HANGUL)
for (const point of continuing) check(point > 0x7f, 'ASCII continues nothing')

const contractionWords = []
/** A node is its own entry, the number of its branches, and [code point, entry, node or 0] for each in order. */
function writeTree(own, tree) {
  const place = contractionWords.length
  contractionWords.push(own, tree.size)
  const branches = [...tree].sort(([a], [b]) => a - b)
  for (const [point, node] of branches) contractionWords.push(point, node.entry, 0)
  for (const [i, [, node]] of branches.entries()) {
    if (node.tree.size > 0) contractionWords[place + 4 + 3 * i] = writeTree(node.entry, node.tree)
  }
  return place
}
// Node 0 stands for none.
contractionWords.push(0, 0)
for (const [first, tree] of contractions) {
  check(entries.has(first), 'the first character of a contraction has an entry of its own')
  entries.set(first, ((writeTree(entries.get(first), tree) << 8) | CONTRACTION) >>> 0)
}
for (const point of continuing) entries.set(point, (entries.get(point) | CONTINUES) >>> 0)

// --- Blocks of entries; equal blocks are stored once. Blocks with Han are filled when the table is loaded.

const blocks = new Uint16Array(CODE_POINTS / BLOCK)
const entryWords = []
const blockPlaces = new Map()
for (let block = 0; block < blocks.length; block++) {
  const words = Array.from({ length: BLOCK }, (_, i) => entries.get(block * BLOCK + i) ?? 0)
  const hasHan = words.some((_, i) => hanRank.has(block * BLOCK + i))
  const key = hasHan ? `han ${block}` : words.join()
  if (!blockPlaces.has(key)) {
    blockPlaces.set(key, entryWords.length / BLOCK)
    entryWords.push(...words.map((word, i) => (hanRank.has(block * BLOCK + i) ? 0 : word)))
  }
  blocks[block] = blockPlaces.get(key)
}

// --- The file.

const markWords = marks.map((point) => ((point << 8) | leadingClass(point)) >>> 0)
const markTails = marks.map(trailingClass)
const sections = [
  Uint32Array.from(entryWords),
  Uint32Array.from(elementWords),
  Uint32Array.from(contractionWords),
  Uint32Array.from(markWords),
  blocks,
  Uint16Array.from(secondaries),
  Uint8Array.from(markTails),
]
const hanWords = Uint32Array.from(hanRanges.map(([first, length]) => first * 256 + length))
for (const [, length] of hanRanges) check(length < 256, 'long range')
const header = Uint32Array.from([...sections, hanWords].map((section) => section.length))
const bytes = Buffer.concat(
  [header, hanWords, ...sections].map((section) =>
    Buffer.from(section.buffer, section.byteOffset, section.byteLength),
  ),
)
const packed = brotliCompressSync(bytes, {
  params: { [constants.BROTLI_PARAM_LGWIN]: 22, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length },
})
const target = fileURLToPath(new URL('../src/query/collation/collation-table.bin', import.meta.url))
writeFileSync(target, packed)
console.log(
  `${mappings.size} mappings, ${contractions.size} starts of contractions, ${marks.length} marks, ${hanRank.size} Han ` +
    `in ${hanRanges.length} ranges: ${bytes.length} bytes, ${packed.length} packed`,
)
