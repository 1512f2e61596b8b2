/** Which checkpoints a standby may store. */
import t from 'tap'
import { claimedTokens, epochOf } from '../../src/standby/checkpoint-rule.ts'

const pouch = (...sequences: (number | string)[]) =>
  JSON.stringify({
    _id: '_local/x',
    _rev: '0-1',
    session_id: 's0',
    last_seq: sequences[0],
    history: sequences.map((last_seq, at) => ({ session_id: `s${at}`, last_seq })),
  })

t.test('the epoch of a token', async (t) => {
  t.same(['5-abc', '5-a-b_c', '12', 12, '5-', 'x-abc', undefined].map(epochOf), [
    'abc',
    'a-b_c',
    null,
    null,
    null,
    null,
    null,
  ])
})

t.test(
  'checkpoints of pulls have tokens, those of pushes are foreign, and other documents are neither',
  async (t) => {
    t.same(claimedTokens(pouch('9-abc', '5-abd', '0-abc')), ['9-abc', '9-abc', '5-abd', '0-abc'])
    t.equal(claimedTokens(pouch(0)), 'foreign', 'a session that has just begun may go on to push')
    t.equal(claimedTokens(pouch(45)), 'foreign')
    t.equal(claimedTokens(pouch('9-abc', 45)), 'foreign')
    t.equal(claimedTokens('{"_id":"_local/obsidian_livesync_milestone","n":1}'), null)
    const couch = {
      session_id: 's',
      source_last_seq: '7-abc',
      history: [{ session_id: 's', recorded_seq: 6 }],
    }
    t.equal(claimedTokens(JSON.stringify(couch)), 'foreign')
  },
)
