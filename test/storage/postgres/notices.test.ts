import t from 'tap'
import type { Connections, Query } from '../../../src/storage/postgres/connections.ts'
import { DatabaseEvents } from '../../../src/storage/postgres/database-events.ts'
import type { DatabaseSettings, DatabaseViews } from '../../../src/storage/postgres/database-view.ts'
import { Notices } from '../../../src/storage/postgres/notices.ts'

const SETTINGS: DatabaseSettings = {
  settingsVersion: 1,
  designVersion: 0,
  revsLimit: 1000,
  purgedInfosLimit: 1000,
  wasRestored: false,
  epochs: [{ id: 'epoch', firstSeq: 0 }],
  security: null,
}

/** Follows database 1 as two incarnations, and waits until a poll has told them of the rows that it reads. */
async function poll(rows: readonly (readonly unknown[])[]) {
  const isTold = Promise.withResolvers<void>()
  let polls = 0
  const read = async ({ name }: Query) => {
    if (name !== 'read_positions') return [[0]]
    polls += 1
    // The second poll begins when the first has told what it has read.
    if (polls === 2) isTold.resolve()
    return rows
  }
  const connections = { read, dedicated: () => Promise.reject(new Error('no connection')) }
  const notices = new Notices({ connections: connections as unknown as Connections, opener: 'opener' })
  const follow = (incarnation: number) => {
    const events = new DatabaseEvents({
      views: { settings: SETTINGS, refresh: async () => SETTINGS } as unknown as DatabaseViews,
      position: { updateSeq: 5, settingsVersion: 1 },
      notify: () => undefined,
    })
    notices.follow(1, incarnation, events)
    return events
  }
  const [older, newer] = [follow(1), follow(2)]
  await isTold.promise
  await notices.close()
  return { older: older.isGone, newer: newer.isGone }
}

const POSITION = [5, 1]

t.test('who has an older incarnation open is told that it is gone, and others are not', async (t) => {
  t.same(await poll([[1, 2, false, ...POSITION]]), { older: true, newer: false })
})

t.test('after a failover whoever has the database open is told that it is gone', async (t) => {
  t.same(await poll([[1, 2, true, ...POSITION]]), { older: true, newer: true })
})

t.test(
  'a poll that has read an older incarnation says nothing of the one that was opened meanwhile',
  async (t) => {
    t.same(await poll([[1, 1, true, ...POSITION]]), { older: true, newer: false })
  },
)

t.test('all are told that a database is gone which was deleted', async (t) => {
  t.same(await poll([]), { older: true, newer: true })
})
