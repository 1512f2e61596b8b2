/** Measures the hot pure functions: `npm run bench:micro [-- words]`, where the words select functions by name. */
import { Bench } from 'tinybench'
import { plainFilter } from '../src/changes/plain-filter.ts'
import { encodeTexts } from '../src/core/bytes.ts'
import { quoted } from '../src/core/json.ts'
import { spliceDocument, splitDocument } from '../src/documents/body.ts'
import { readPlainBulk } from '../src/documents/request-body.ts'
import { SpanScanner } from '../src/documents/spans.ts'
import { type Branch, decodeAncestry, encodeAncestry, makeBranch } from '../src/revisions/branch.ts'
import { merge } from '../src/revisions/merge.ts'
import { type Epochs, epochId, readSequence, sequenceToken } from '../src/storage/sequence.ts'
import { makeNotes, mulberry32, type Note, pushBodies } from './seed.ts'

const REVS_LIMIT = 1000
const TIME_MS = 500

type Task = readonly [name: string, run: () => unknown]

const notes = makeNotes(100)
const [note] = notes as [Note]
const texts = notes.map((one) => JSON.stringify(one))
const [text] = texts as [string]
const { body } = splitDocument(text)
const [batch] = pushBodies(notes, notes.length)
const batchBytes = Buffer.from(batch as string)

const random = mulberry32(7)
const hex = () => Array.from({ length: 32 }, () => Math.floor(random() * 16).toString(16)).join('')
const path = (length: number): Branch => makeBranch(length, Array.from({ length }, hex), false)
/** The document that a device sends after one more edit. */
const child = ({ pos, ids }: Branch): Branch =>
  makeBranch(pos + 1, [hex(), ...ids].slice(0, REVS_LIMIT), false)

const short = path(3)
const shortChild = child(short)
const long = path(1000)
const longChild = child(long)
const conflicts = Array.from({ length: 200 }, () => path(100))
const conflictChild = child(conflicts[50] as Branch)
const encoded = encodeAncestry(long.ids)

const epoch = (n: number) => ({ id: epochId(Buffer.from(`epoch ${n}`.padEnd(12))), firstSeq: n * 1000 })
const epochs: Epochs = [epoch(0), ...Array.from({ length: 19 }, (_, n) => epoch(n + 1))]
const token = sequenceToken(epochs, 12_345)

const sync = plainFilter("function (doc, req) { return doc._id.indexOf('file:') === -1 }")
if (sync === null) throw new Error('the filter of mobile/sync is not plain')

const TASKS: readonly Task[] = [
  ['body scanner: a note of 1 kB taken apart', () => splitDocument(text)],
  ['splicer: a note of 1 kB put together', () => spliceDocument({ id: note._id, rev: note._rev, body })],
  ['id quoted', () => quoted(note._id)],
  // Concatenated each time, because encoding flattens a string.
  [
    '100 notes of 1 kB encoded',
    () =>
      encodeTexts(
        texts.map((one) => `{"doc":${one}}`),
        ',\r\n',
      ),
  ],
  [
    'span scanner: 100 notes of 1 kB found in a bulk',
    () => {
      const scanner = new SpanScanner({ member: 'docs', maxSpan: 8e6, maxOther: 1e6 })
      scanner.push(batchBytes)
      return scanner.end()
    },
  ],
  ['bulk: 100 notes of 1 kB found and taken apart', () => readPlainBulk({ bytes: batchBytes })],
  ['merge: into nothing', () => merge([], short, REVS_LIMIT)],
  ['merge: one edit more upon 3 revisions', () => merge([short], shortChild, REVS_LIMIT)],
  ['merge: one edit more upon 1,000 revisions', () => merge([long], longChild, REVS_LIMIT)],
  ['merge: one edit more upon one of 200 conflicts', () => merge(conflicts, conflictChild, REVS_LIMIT)],
  ['ancestry of 1,000 revisions written', () => encodeAncestry(long.ids)],
  ['ancestry of 1,000 revisions read', () => decodeAncestry(encoded)],
  ['token written, of 20 epochs', () => sequenceToken(epochs, 12_345)],
  ['token read, of 20 epochs', () => readSequence(epochs, 20_000, token)],
  ['plain filter: mobile/sync', () => sync({ _id: note._id, _rev: note._rev, _deleted: undefined })],
]

const words = process.argv.slice(2)
const bench = new Bench({ time: TIME_MS })
for (const [name, run] of TASKS) {
  if (words.length === 0 || words.some((word) => name.includes(word))) bench.add(name, run)
}
await bench.run()
console.table(bench.table())
