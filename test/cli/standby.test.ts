/** What `settee follow` says. */
import t from 'tap'
import { linesOf } from '../../src/cli/standby-command.ts'

const REPORT = {
  state: 'following',
  first: 'http://primary:5984/',
  lagSeconds: 2.4,
  databases: 3,
  waiting: 1,
  refused: 0,
  reason: null,
  failures: [],
} as const

t.test('a standby that follows, one that is in trouble, and one that has stopped', async (t) => {
  t.same(linesOf(REPORT), [
    'This server follows http://primary:5984/.',
    'It has everything that the primary had acknowledged more than 3 s ago.',
    'It follows 3 databases, of which 1 are being copied or wait for it.',
  ])
  const failures = [{ database: 'no\u001b[2Jtes', reason: 'the disk is full' }]
  const trouble = linesOf({ ...REPORT, lagSeconds: 7200, refused: 2, reason: 'down', failures })
  t.match(trouble[1], /120 minutes/)
  t.same(trouble.slice(3), [
    'Reason: down',
    '2 revisions could not be stored here; see the log.',
    'no\\u{1b}[2Jtes: the disk is full',
  ])
  const stopped = linesOf({ ...REPORT, state: 'halted', lagSeconds: null, reason: 'notes was restored' })
  t.match(stopped[0], /has stopped following/)
  t.match(stopped.at(-1), /--again.*promote/)
  t.same(linesOf({ ...REPORT, state: 'none' }), ['This server is no standby.'])
})
