import t from 'tap'
import { Followers } from '../../src/standby/followers.ts'

t.test('standbys that have called lately, the last first, and no more than 16', async (t) => {
  const followers = new Followers()
  followers.note('a', 0)
  followers.note('b', 1000)
  followers.note('a', 2000)
  t.same(followers.list(2000), [
    { address: 'a', lastSeen: 2000 },
    { address: 'b', lastSeen: 1000 },
  ])
  t.same(followers.list(301_500), [{ address: 'a', lastSeen: 2000 }], 'after five minutes they are gone')
  for (let n = 0; n < 100; n++) followers.note(`c${n}`, 3000)
  t.equal(followers.list(3000).length, 16)
  t.equal(followers.list(3000)[0]?.address, 'c99')
})
