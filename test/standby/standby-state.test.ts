/** The states of a standby; docs/standby.md has the same table. */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import {
  acceptsWrites,
  nextState,
  type StandbyEvent,
  type StandbyState,
  TRANSITIONS,
} from '../../src/standby/standby-state.ts'

const STATES: readonly StandbyState[] = ['none', 'following', 'halted', 'promoting']
const EVENTS: readonly StandbyEvent[] = ['follow', 'halt', 'promote', 'finish']

t.test('writes are accepted only by a server that is no standby', async (t) => {
  t.same(
    STATES.filter((state) => acceptsWrites(state)),
    ['none'],
  )
})

t.test('a promotion cannot be undone, and nothing else leads to an ordinary server', async (t) => {
  for (const state of STATES) {
    for (const event of EVENTS) {
      const next = nextState(state, event)
      if (next === 'none') t.same([state, event], ['promoting', 'finish'])
      if (state === 'promoting' && next !== null) t.ok(['promoting', 'none'].includes(next))
    }
  }
})

t.test('docs/standby.md has the table', async (t) => {
  const text = await readFile(new URL('../../docs/standby.md', import.meta.url), 'utf8')
  const rows = [...text.matchAll(/^\| `(\w+)` \| `(\w+)` \| `(\w+)` \|/gm)].map(([, ...cells]) => cells)
  const table = Object.entries(TRANSITIONS).flatMap(([state, events]) =>
    Object.entries(events).map(([event, next]) => [state, event, next]),
  )
  t.same(rows.sort(), table.sort())
})
