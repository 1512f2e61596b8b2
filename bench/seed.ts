/** Generated notes, the same in every run. */
import { createHash } from 'node:crypto'

/** A note with its ancestry, as a replicator sends it. */
export interface Note {
  readonly _id: string
  readonly _rev: string
  readonly _revisions: { readonly start: number; readonly ids: readonly string[] }
  readonly title: string
  readonly body: string
  readonly tags: readonly string[]
  readonly createdAt: number
  readonly updatedAt: number
}

const REVISIONS = 3
/** The body of a note without its history. */
const NOTE_BYTES = 1024
const WORDS =
  'the sync of notes between two devices goes on while both of them write and nothing is ever lost'.split(' ')

/** @returns notes of 1 kB with three revisions each */
export function makeNotes(count: number): Note[] {
  const random = mulberry32(count)
  return Array.from({ length: count }, (_, n) => makeNote(n, random))
}

function makeNote(n: number, random: () => number): Note {
  const _id = `note:${hash(`id ${n}`).slice(0, 12)}`
  const ids = Array.from({ length: REVISIONS }, (_, back) => hash(`${_id} ${REVISIONS - back}`))
  const note = {
    _id,
    _rev: `${REVISIONS}-${ids[0]}`,
    title: text(40, random),
    tags: [text(8, random), text(8, random)],
    createdAt: 1_700_000_000_000 + n,
    updatedAt: 1_700_000_000_000 + 2 * n,
  }
  const rest = NOTE_BYTES - JSON.stringify({ ...note, body: '' }).length
  return { ...note, _revisions: { start: REVISIONS, ids }, body: text(rest, random) }
}

/** @returns the bodies of `_bulk_docs` calls that store the notes with their histories */
export function pushBodies(notes: readonly Note[], perBatch: number): string[] {
  return batches(notes, perBatch).map((docs) => JSON.stringify({ docs, new_edits: false }))
}

/** Cuts a list into pieces of one size, the last one shorter. */
export function batches<T>(list: readonly T[], size: number): T[][] {
  const count = Math.ceil(list.length / size)
  return Array.from({ length: count }, (_, n) => list.slice(n * size, (n + 1) * size))
}

/** @returns the note as an interactive write: a new document without a revision and an id */
export function newDocument({ title, body, tags, createdAt, updatedAt }: Note): string {
  return JSON.stringify({ title, body, tags, createdAt, updatedAt })
}

function text(length: number, random: () => number): string {
  let words = ''
  while (words.length < length) words += `${WORDS[Math.floor(random() * WORDS.length)]} `
  return words.slice(0, length)
}

function hash(of: string): string {
  return createHash('md5').update(of).digest('hex')
}

/** Tommy Ettinger's generator: the same numbers from the same seed. */
export function mulberry32(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
