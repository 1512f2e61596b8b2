import fc from 'fast-check'
import t from 'tap'
import { claimOf, isCheckpoint, provesLoss } from '../../src/storage/checkpoints.ts'
import {
  beginEpoch,
  type Epochs,
  firstEpochs,
  isRolledBack,
  readSequence,
  sequenceToken,
} from '../../src/storage/sequence.ts'

const VIEW = {
  updateSeq: 20,
  epochs: [
    { id: 'first', firstSeq: 0 },
    { id: 'second', firstSeq: 11 },
  ] as unknown as Epochs,
}

function pouch(last: unknown, ...before: unknown[]): string {
  const history = [last, ...before].map((last_seq, n) => ({ last_seq, session_id: `s${n}` }))
  return JSON.stringify({ session_id: 's0', last_seq: last, history, version: 1, replicator: 'pouchdb' })
}

function couch(source: unknown): string {
  const history = [{ session_id: 's', recorded_seq: source, end_last_seq: source }]
  return JSON.stringify({ session_id: 's', source_last_seq: source, replication_id_version: 4, history })
}

t.test('checkpoints are recognised', async (t) => {
  for (const body of [pouch(7), pouch('7-first'), couch('7-g1AAA'), couch(0)]) t.ok(isCheckpoint(body), body)
  const others = [
    '{}',
    '{"session_id":"s"}',
    '{"history":[]}',
    '{"session_id":1,"history":[]}',
    '{"last_seq":0}',
  ]
  others.push('{"session_id":"s","history":{}}', '{"x":{"session_id":"s","history":[]}}')
  for (const body of others) t.notOk(isCheckpoint(body), body)
})

t.test('the claim of a checkpoint', async (t) => {
  const rows: [string, string | null][] = [
    ['{"x":1}', null],
    [pouch(0), 'begun'],
    [pouch('0'), 'begun'],
    [couch('0-g1AAA'), 'begun'],
    [pouch(1), 'unproven'],
    [pouch('1'), 'unproven'],
    [pouch('10-first'), 'held'],
    [pouch('20-second'), 'held'],
    [pouch('11-first'), 'unproven'],
    [pouch('21-second'), 'unproven'],
    [pouch('5-elsewhere'), 'unproven'],
    [couch('12-g1AAAAF'), 'unproven'],
    [pouch([5, 'x']), 'unproven'],
    [pouch(null), 'unproven'],
    [pouch('10-first', 0), 'held'],
    [pouch('10-first', 5), 'unproven'],
    [pouch(0, '10-first'), 'held'],
    ['{"session_id":"s","history":[]}', 'unproven'],
  ]
  for (const [body, claim] of rows) t.equal(claimOf(body, VIEW), claim, body)
})

/** The epochs of a database with some openings, and how far it is. */
const life = fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 8 }).map((writes) => {
  let epochs: Epochs = [{ id: 'e', firstSeq: 0 }]
  let updateSeq = 0
  const moments: { epochs: Epochs; updateSeq: number }[] = [{ epochs, updateSeq }]
  for (const [opening, count] of writes.entries()) {
    if (count > 0) epochs = beginEpoch(epochs, `e${opening}`, updateSeq + 1)
    for (let n = 0; n < count; n++) moments.push({ epochs, updateSeq: ++updateSeq })
  }
  return moments
})

t.test('a database that only went on has not gone back; one that was put back has', async () => {
  fc.assert(
    fc.property(life, fc.nat(), fc.nat(), (moments, a, b) => {
      const [early, late] = [a % moments.length, b % moments.length].sort((x, y) => x - y) as [number, number]
      const at = (n: number) => moments[n] as (typeof moments)[number]
      const markOf = ({ epochs, updateSeq }: (typeof moments)[number]) => {
        const [, epoch = ''] = sequenceToken(epochs, updateSeq).split('-')
        return { epoch, updateSeq }
      }
      if (isRolledBack(at(late), markOf(at(early)))) return false
      return early === late || isRolledBack(at(early), markOf(at(late)))
    }),
  )
})

t.test('a token that is held reads as itself, whatever life it comes from', async () => {
  fc.assert(
    fc.property(life, fc.nat(), fc.nat(), (moments, a, b) => {
      const mine = moments[a % moments.length] as (typeof moments)[number]
      const other = moments[b % moments.length] as (typeof moments)[number]
      const token = sequenceToken(other.epochs, other.updateSeq)
      const claim = claimOf(pouch(token), mine)
      const { seq } = readSequence(mine.epochs, mine.updateSeq, token)
      return claim === 'unproven' ? seq < other.updateSeq : seq === other.updateSeq
    }),
  )
})

t.test('a checkpoint with a token of what is lost proves it, whatever numbers are beside it', async (t) => {
  const epochs = firstEpochs(Date.now() - 1000)
  const [held, lost] = [sequenceToken(epochs, 3), sequenceToken(epochs, 8)]
  const proves = (body: string) => provesLoss(body, { epochs, updateSeq: 5 })
  t.equal(proves(pouch(lost)), true)
  t.equal(proves(pouch(held, lost)), true)
  t.equal(proves(pouch(held)), false)
  t.equal(proves(JSON.stringify({ lost })), false, 'a checkpoint of another document proves nothing')
})
