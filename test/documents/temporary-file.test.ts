/** Bodies in temporary files: what is read is what was written, or an error. */
import { readSync, writeSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import {
  AMPLE_ROOM,
  type FileBody,
  fileBytes,
  fileRange,
  readFileBytes,
  TemporaryFile,
} from '../../src/documents/temporary-file.ts'
import { temporaryFolder } from '../helpers/server.ts'

const folder = await temporaryFolder(t)

/** Bytes that differ from place to place, in a file that they reach in chunks of these lengths. */
async function written(lengths: readonly number[]) {
  const length = lengths.reduce((sum, one) => sum + one, 0)
  const bytes = Buffer.from(
    Uint32Array.from({ length: Math.ceil(length / 4) }, (_, at) => at * 2_654_435_761).buffer,
  ).subarray(0, length)
  const file = await TemporaryFile.open(folder, AMPLE_ROOM)
  let at = 0
  for (const one of lengths) {
    await file.append(bytes.subarray(at, at + one))
    at += one
  }
  return { file, bytes }
}

/** Changes a bit of a file, as a disk does. */
function flip({ file }: FileBody, place: number): void {
  const byte = Buffer.alloc(1)
  readSync(file, byte, 0, 1, place)
  writeSync(file, Buffer.of((byte[0] as number) ^ (1 << (place % 8))), 0, 1, place)
}

async function all(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(chunks))
}

const lengths = fc.array(
  fc.oneof(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 60_000, max: 200_000 })),
  { minLength: 1, maxLength: 8 },
)
const fraction = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })

t.test('ranges are read as they were written, in any order', async () => {
  await fc.assert(
    fc.asyncProperty(
      lengths,
      fc.array(fc.tuple(fraction, fraction), { maxLength: 20 }),
      async (lengths, ranges) => {
        const { file, bytes } = await written(lengths)
        const { body } = file
        for (const [from, rest] of ranges) {
          const start = Math.floor(from * bytes.length)
          const end = start + Math.floor(rest * (bytes.length - start)) + 1
          const expected = bytes.subarray(start, end)
          const isSame =
            readFileBytes(body, Buffer.alloc(end - start), start).equals(expected) &&
            (await fileBytes(body, start, end)).equals(expected) &&
            (await all(fileRange(body, start, end))).equals(expected)
          if (!isSame) throw new Error(`other bytes from ${start} to ${end}`)
        }
        if (!(await all(file.read())).equals(bytes)) throw new Error('other bytes')
        await file.close()
      },
    ),
    { numRuns: 50 },
  )
})

t.test('a changed bit is an error wherever a block with it is read, and no other block fails', async () => {
  await fc.assert(
    fc.asyncProperty(lengths, fraction, fraction, async (lengths, flipped, read) => {
      const { file, bytes } = await written(lengths)
      const place = Math.floor(flipped * bytes.length)
      const start = Math.floor(read * bytes.length)
      const { body } = file
      flip(body, place)
      const isInBlock = Math.floor(place / 65_536) === Math.floor(start / 65_536)
      for (const reading of [
        async () => readFileBytes(body, Buffer.alloc(1), start),
        () => fileBytes(body, start, start + 1),
      ]) {
        const found = await reading().catch((error: { code: string }) => error.code)
        const isRight = isInBlock
          ? found === 'disk_fault'
          : typeof found !== 'string' && found[0] === bytes[start]
        if (!isRight) throw new Error(`${found} at ${start}, with a changed bit at ${place}`)
      }
      await file.close()
    }),
    { numRuns: 50 },
  )
})

t.test('a block that the disk returns wrong once is read again', async (t) => {
  const { file, bytes } = await written([100_000])
  const { body } = file
  flip(body, 10)
  const block = Buffer.alloc(65_536)
  // It is right again after the first part of it was read.
  const isRight = fileBytes(body, 0, 65_536)
  await new Promise((resolve) => setImmediate(resolve))
  flip(body, 10)
  t.ok((await isRight).equals(bytes.subarray(0, 65_536)))
  t.ok(readFileBytes(body, block, 0).equals(bytes.subarray(0, 65_536)))
  await file.close()
})

t.test('an emptied file has nothing of what was in it', async (t) => {
  const { file } = await written([70_000])
  await file.empty()
  await file.append(Buffer.from('other'))
  t.equal(String(await all(file.read())), 'other')
  await file.close()
})

t.test('a range behind the end is an error', async (t) => {
  const { file } = await written([70_000])
  t.throws(() => readFileBytes(file.body, Buffer.alloc(2), 69_999))
  await t.rejects(fileBytes(file.body, 80_000, 80_001))
  await file.close()
})
