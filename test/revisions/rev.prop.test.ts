import fc from 'fast-check'
import t from 'tap'
import { compareUtf8 } from '../../src/core/bytes.ts'
import { formatRev, newRevId, parseRev, type RevContent } from '../../src/revisions/rev.ts'

const text = fc.string({ unit: 'binary', maxLength: 8 })
const id = fc.string({ unit: 'binary', minLength: 1, maxLength: 8 })

t.test('ids compare as their bytes do', async () => {
  fc.assert(
    fc.property(text, text, (a, b) => {
      return Math.sign(compareUtf8(a, b)) === Buffer.compare(Buffer.from(a), Buffer.from(b))
    }),
    { numRuns: 3000 },
  )
})

t.test('what is written is read back', async () => {
  fc.assert(
    fc.property(fc.maxSafeNat(), id, (pos, id) => {
      const rev = parseRev(formatRev(pos, id))
      return rev.pos === pos && rev.id === id
    }),
  )
})

t.test('different contents have different ids, however their texts run together', async () => {
  const short = fc.string({ unit: fc.constantFrom('a', '1', ':'), maxLength: 3 })
  const attachments = fc.uniqueArray(fc.record({ name: short, type: short, digest: short }), {
    maxLength: 2,
    selector: (one) => one.name,
  })
  const parent = fc.option(short.map((id) => `1-${id}`))
  const content = fc.record({ parent, deleted: fc.boolean(), body: short, attachments })
  const plain = (one: RevContent) =>
    JSON.stringify([
      one.parent,
      one.deleted,
      one.body,
      one.attachments.map((a) => [a.name, a.type, a.digest]).sort(),
    ])
  fc.assert(
    fc.property(content, content, (a, b) => (newRevId(a) === newRevId(b)) === (plain(a) === plain(b))),
    { numRuns: 5000 },
  )
})
