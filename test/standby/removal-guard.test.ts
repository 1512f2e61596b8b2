/** How many databases a primary may delete before its standby stops. */
import t from 'tap'
import { RemovalGuard } from '../../src/standby/removal-guard.ts'

t.test('a single database may always go, and most of several may not', async (t) => {
  const guard = new RemovalGuard()
  t.equal(guard.refusal(0, 0, 0), null)
  t.equal(guard.refusal(1, 1, 0), null)
  t.equal(guard.refusal(2, 4, 0), null)
  t.equal(guard.refusal(3, 4, 0), '3 of 4 databases are gone on the primary')
  t.equal(guard.refusal(2, 2, 0), '2 of 2 databases are gone on the primary')
})

t.test('databases that go one after the other within ten minutes count together', async (t) => {
  const guard = new RemovalGuard()
  for (const [at, followed] of [4, 3].entries()) {
    t.equal(guard.refusal(1, followed, at), null)
    guard.note(at)
  }
  t.equal(guard.refusal(1, 2, 10), '3 of 4 databases are gone on the primary')
  t.equal(guard.refusal(1, 2, 600_001), null)
})
