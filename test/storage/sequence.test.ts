import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import {
  beginEpoch,
  type Epochs,
  epochId,
  firstEpochs,
  readSequence,
  renewEpochs,
  sequenceToken,
} from '../../src/storage/sequence.ts'

const MOST = 1000

/** One epoch a number: the first owns 0 and up to `firsts[0] - 1`. */
function epochsOf(...firsts: number[]): Epochs {
  return firsts.reduce<Epochs>(
    (epochs, first) => beginEpoch(epochs, `e${first}`, first),
    [{ id: 'e0', firstSeq: 0 }],
  )
}

const EPOCHS = epochsOf(5, 8)

const reads: { says: string; token: string; seq: number; unknownEpoch?: true }[] = [
  { says: 'a number of the first epoch is itself', token: '3-e0', seq: 3 },
  { says: 'a number of a later epoch is itself', token: '6-e5', seq: 6 },
  { says: 'a number of the newest epoch is itself', token: '9-e8', seq: 9 },
  { says: 'the last number of an epoch is itself', token: '7-e5', seq: 7 },
  { says: 'zero is zero', token: '0', seq: 0 },
  { says: 'zero of the first epoch is zero', token: '0-e0', seq: 0 },
  { says: 'a number beyond its epoch is that epoch’s end: the store was rolled back', token: '9-e5', seq: 7 },
  { says: 'a number beyond the newest epoch is the newest number', token: '99-e8', seq: 10 },
  { says: 'an epoch that is not ours is 0', token: '6-stranger', seq: 0, unknownEpoch: true },
  { says: 'CouchDB’s own token is 0', token: `6-g1${'A_-a9'.repeat(60)}`, seq: 0, unknownEpoch: true },
  { says: 'zero of an epoch that is not ours is no news', token: '0-stranger', seq: 0 },
  { says: 'a bare number is itself', token: '6', seq: 6 },
  { says: 'a bare number that is the newest is itself', token: '10', seq: 10 },
  { says: 'a bare number above the newest is 0', token: '11', seq: 0 },
  { says: 'a bare number of any length is a number', token: '9'.repeat(400), seq: 0 },
  { says: 'JSON quotes around a token are tolerated', token: '"6-e5"', seq: 6 },
  { says: 'JSON quotes around a bare number are tolerated', token: '"6"', seq: 6 },
]

for (const { says, token, seq, unknownEpoch = false } of reads) {
  t.test(`readSequence: ${says}`, async (t) => {
    t.same(readSequence(EPOCHS, 10, token), { seq, unknownEpoch })
  })
}

const malformed = [
  '',
  '-',
  'x',
  '-1',
  '1.5',
  '1-',
  '"',
  '""',
  '"6',
  '6"',
  '""6""',
  '1-e 0',
  '1-é',
  '1-e0\n',
  ' 1',
  '1e3',
  'now',
]

for (const token of malformed) {
  t.test(`readSequence: ${JSON.stringify(token)} is refused`, async (t) => {
    t.throws(() => readSequence(EPOCHS, 10, token), { code: 'bad_request', status: 400 })
    t.throws(() => readSequence(EPOCHS, 10, token), CouchError)
  })
}

t.test('sequenceToken: names the epoch that owns the number', async (t) => {
  const tokens = [0, 1, 4, 5, 7, 8, 10].map((seq) => sequenceToken(EPOCHS, seq))
  t.same(tokens, ['0-e0', '1-e0', '4-e0', '5-e5', '7-e5', '8-e8', '10-e8'])
})

t.test('beginEpoch: an epoch that owns no number goes', async (t) => {
  t.same(beginEpoch(EPOCHS, 'new', 8), [EPOCHS[0], EPOCHS[1], { id: 'new', firstSeq: 8 }])
  t.same(beginEpoch(EPOCHS, 'new', 0), [{ id: 'new', firstSeq: 0 }])
})

t.test('beginEpoch: leaves the list that it was given', async (t) => {
  const before = structuredClone(EPOCHS)
  beginEpoch(EPOCHS, 'new', 6)
  t.same(EPOCHS, before)
})

t.test('beginEpoch: the list has at most 1000 entries, of which the oldest become one', async (t) => {
  const full = epochsOf(...Array.from({ length: MOST - 1 }, (_, i) => (i + 1) * 10))
  t.equal(full.length, MOST)
  const merged = beginEpoch(full, 'new', 20_000)
  t.equal(merged.length, MOST)
  t.same(merged.slice(0, 2), [
    { id: 'e10', firstSeq: 0 },
    { id: 'e20', firstSeq: 20 },
  ])
  t.equal(merged.at(-1)?.id, 'new')
  for (const seq of [10, 11, 20, 9_990, 19_999]) t.equal(sequenceToken(merged, seq), sequenceToken(full, seq))
  t.same(
    readSequence(merged, 20_000, '5-e0'),
    { seq: 0, unknownEpoch: true },
    'a token of a forgotten epoch starts from 0',
  )
  t.same(readSequence(merged, 20_000, '15-e10'), { seq: 15, unknownEpoch: false })
})

t.test('epochId: is short, and safe in an address', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 9, maxLength: 32 }), (bytes) =>
      /^[0-9A-Za-z_-]{12}$/.test(epochId(bytes)),
    ),
  )
  t.not(epochId(Buffer.alloc(9, 1)), epochId(Buffer.alloc(9, 2)))
})

/** The life of a database: for each opening, how many updates it saw. */
const life = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 30 })
const randomBytes = fc.uint8Array({ minLength: 9, maxLength: 9 })

/** Lives through openings; calls `after` with the tokens given out so far. */
function live(openings: number[], names: string[], after: (epochs: Epochs, tokens: string[]) => void): void {
  let epochs: Epochs = [{ id: 'made', firstSeq: 0 }]
  const tokens = [sequenceToken(epochs, 0)]
  openings.forEach((updates, opening) => {
    epochs = beginEpoch(epochs, names[opening] ?? `${opening}`, tokens.length)
    for (let i = 0; i < updates; i++) tokens.push(sequenceToken(epochs, tokens.length))
    after(epochs, tokens)
  })
}

const names = fc.uniqueArray(randomBytes.map(epochId), { minLength: 30, maxLength: 30 })

t.test('tokens never change as epochs are added, and are read as their number', async () => {
  fc.assert(
    fc.property(life, names, (openings, ids) => {
      live(openings, ids, (epochs, tokens) => {
        tokens.forEach((token, seq) => {
          equal(sequenceToken(epochs, seq), token)
          equal(readSequence(epochs, tokens.length - 1, token), { seq, unknownEpoch: false })
          equal(readSequence(epochs, tokens.length - 1, JSON.stringify(token)).seq, seq)
        })
      })
    }),
  )
})

t.test('tokens need no escaping in a URL, and each means one number', async () => {
  fc.assert(
    fc.property(life, names, (openings, ids) => {
      live(openings, ids, (_epochs, tokens) => {
        equal(
          tokens.filter((token) => !/^\d+-[0-9A-Za-z_-]+$/.test(token)),
          [],
        )
        equal(new Set(tokens).size, tokens.length)
      })
    }),
  )
})

t.test(
  'a store that is rolled back reads a later token as the last number that both lives share',
  async () => {
    fc.assert(
      fc.property(life, names, fc.nat(), fc.integer({ min: 1, max: 20 }), (openings, ids, back, later) => {
        let [epochs, tokens]: [Epochs, string[]] = [[{ id: 'made', firstSeq: 0 }], []]
        const moments: Epochs[] = []
        live(openings, ids, (now, given) => {
          while (moments.length < given.length) moments.push(now)
          ;[epochs, tokens] = [now, [...given]]
        })
        const kept = back % tokens.length
        const restored = beginEpoch(moments[kept] as Epochs, 'another-life', kept + 1)
        tokens.forEach((token, seq) => {
          const read = readSequence(restored, kept + later, token)
          const isShared = seq <= kept
          if (isShared) equal(read, { seq, unknownEpoch: false })
          else equal(read.seq === 0 || read.seq === kept, true)
          if (!isShared) equal(sequenceToken(restored, seq) === token, false)
        })
        equal(sequenceToken(epochs, tokens.length - 1), tokens.at(-1))
      }),
    )
  },
)

t.test('any text is read as a number in range or refused', async () => {
  const text = fc.oneof(fc.string(), fc.stringMatching(/^"?\d{1,20}(-[0-9A-Za-z_-]{0,20})?"?$/))
  fc.assert(
    fc.property(text, (token) => {
      try {
        const { seq } = readSequence(EPOCHS, 10, token)
        equal(Number.isInteger(seq) && seq >= 0 && seq <= 10, true)
      } catch (error) {
        equal(error instanceof CouchError && error.code, 'bad_request')
      }
    }),
  )
})

t.test(
  'the list stays within its bound through a long life, and no number is without an owner',
  async (t) => {
    let epochs: Epochs = [{ id: 'made', firstSeq: 0 }]
    for (let seq = 1; seq <= 3 * MOST; seq++) {
      epochs = beginEpoch(epochs, `e${seq}`, seq)
      if (epochs.length > MOST || epochs[0].firstSeq !== 0) t.fail(`${epochs.length} entries at ${seq}`)
    }
    t.equal(epochs.length, MOST)
    t.equal(sequenceToken(epochs, 3 * MOST), `${3 * MOST}-e${3 * MOST}`)
    t.equal(sequenceToken(epochs, 2 * MOST + 2), `${2 * MOST + 2}-e${2 * MOST + 2}`)
  },
)

/** What happens to a database, one after the other. */
const event = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant('write' as const), count: fc.integer({ min: 1, max: 9 }) }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('start' as const) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('restore' as const), at: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('goBack' as const), at: fc.nat() }) },
)

interface Moment {
  readonly epochs: Epochs
  readonly updateSeq: number
  /** The numbers that were given out in this history, each with what was written. */
  readonly written: readonly string[]
  /** How many writes there had been, in all histories, when it was last restored: those it lacks are known to be lost. */
  readonly restoredAfter: number
}

t.test(
  'whatever way a database goes back, the tokens of what is lost prove it, once, and no others do',
  async () => {
    fc.assert(
      fc.property(fc.array(event, { minLength: 2, maxLength: 40 }), (events) => {
        let now = 1_700_000_000_000
        let present: Moment = { epochs: firstEpochs(now), updateSeq: 0, written: [''], restoredAfter: 0 }
        /** Each token that was ever given out, and what it names. */
        const given = new Map<string, string>()
        const moments: Moment[] = [present]
        // A start, or whatever else may hide what has happened, begins an epoch with the next write.
        let isStarted = false
        let writes = 0
        const isHeld = (what: string) => present.written.includes(what)
        for (const event of events) {
          now += 1
          const { epochs, updateSeq, written } = present
          if (event.type === 'start') isStarted = true
          if (event.type === 'write') {
            const renewed = isStarted ? renewEpochs(epochs, updateSeq + 1, { now }) : epochs
            isStarted = false
            const more = Array.from({ length: event.count }, () => `${++writes}`)
            present = {
              ...present,
              epochs: renewed,
              updateSeq: updateSeq + event.count,
              written: [...written, ...more],
            }
            for (const [at, what] of more.entries()) {
              const token = sequenceToken(renewed, updateSeq + 1 + at)
              equal(given.has(token), false)
              given.set(token, what)
            }
          }
          if (event.type === 'restore' || event.type === 'goBack') {
            const back = moments[event.at % moments.length] as Moment
            present = back
            isStarted = true
            if (event.type === 'restore')
              present = {
                ...back,
                epochs: renewEpochs(back.epochs, back.updateSeq + 1, { now, isRestored: true }),
                restoredAfter: writes,
              }
          }
          moments.push(present)
          const read = (token: string) => readSequence(present.epochs, present.updateSeq, token, now + 1)
          const proofs = [...given].filter(([token]) => read(token).isLost)
          for (const [, what] of proofs) equal(isHeld(what), false)
          // What a client holds never hides what it lacks.
          for (const [token, what] of given)
            equal(!isHeld(what) || read(token).seq === present.written.indexOf(what), true)
          if (event.type === 'goBack') {
            const sinceRestore = lostSince(moments, present)
            for (const [token, what] of given) if (sinceRestore.has(what)) equal(read(token).isLost, true)
          }
          for (const [token] of proofs) {
            const altered = token.slice(0, -1) + (token.endsWith('A') ? 'B' : 'A')
            equal(read(altered).isLost, undefined)
            equal(read(token.slice(0, -5)).isLost, undefined)
          }
          if (event.type === 'start' && proofs.length > 0) {
            const { epochs, updateSeq } = present
            present = {
              ...present,
              epochs: renewEpochs(epochs, updateSeq + 1, { now: now + 2, isRestored: true }),
              restoredAfter: writes,
            }
            now += 3
            equal([...given].filter(([token]) => read(token).isLost).length, 0)
          }
        }
      }),
    )
  },
)

/** What was written in the history just before the database went back, is not there, and was not lost by its last restore. */
function lostSince(moments: readonly Moment[], { written, restoredAfter }: Moment): ReadonlySet<string> {
  const before = moments.at(-2) as Moment
  return new Set(before.written.filter((what) => !written.includes(what) && Number(what) > restoredAfter))
}

t.test('a number that nobody has given out cannot be claimed by who knows other tokens', async (t) => {
  const epochs = firstEpochs(1_700_000_000_000)
  const [known, next] = [sequenceToken(epochs, 3), sequenceToken(epochs, 4)]
  t.match(known, /^3-[0-9A-Za-z_-]{17}$/)
  t.equal(readSequence(epochs, 3, next).isLost, true)
  t.notOk(readSequence(epochs, 3, known.replace('3', '4')).isLost)
  t.notOk(readSequence(firstEpochs(1_700_000_000_001), 3, next).isLost, 'nor by tokens of another database')
  t.notOk(readSequence(epochs, 3, `${'9'.repeat(30)}${next.slice(1)}`).isLost)
})

t.test('epochs of earlier versions have no codes, and their tokens stay', async (t) => {
  const renewed = renewEpochs(EPOCHS, 11, { now: 1_700_000_000_000 })
  t.equal(sequenceToken(renewed, 9), '9-e8')
  const coded = sequenceToken(renewed, 11)
  t.match(coded, /^11-[0-9A-Za-z_-]{17}$/)
  t.same(readSequence(renewed, 11, '11-e8'), { seq: 10, unknownEpoch: false }, 'which proves nothing')
  t.same(readSequence(renewed, 11, coded.slice(0, -5)), { seq: 11, unknownEpoch: false })
})

function equal(found: unknown, wanted: unknown): void {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)]
  if (a !== b) throw new Error(`found ${a}, wanted ${b}`)
}
