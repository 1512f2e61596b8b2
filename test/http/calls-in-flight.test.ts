import { EventEmitter } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyReply } from 'fastify'
import t, { type Test } from 'tap'
import { CouchError, type ErrorName } from '../../src/core/errors.ts'
import { ActiveRequests } from '../../src/http/plugins/revocation.ts'

interface Fake {
  readonly raw: EventEmitter
  readonly request: {
    readonly user: { readonly name: string | null }
    readonly database: { readonly name: string } | null
    readonly isWaitingFeed: boolean
    readonly raw: { readonly socket: { destroyed: boolean } }
  }
}

function fake(
  name: string | null,
  database: string | null = null,
  isWaitingFeed = false,
): Fake & FastifyReply {
  const request = {
    user: { name },
    database: database === null ? null : { name: database },
    isWaitingFeed,
    raw: { socket: { destroyed: false } },
  }
  return { raw: new EventEmitter(), request } as unknown as Fake & FastifyReply
}

/** Notes which are looked at, tick by tick. */
function start(t: Test, refusals: Readonly<Record<string, ErrorName>> = {}) {
  const seen: string[] = []
  const cuts: string[] = []
  const calls = new ActiveRequests({
    tickMs: 5,
    checkAgain: async ({ user }) => {
      seen.push(String(user.name))
      const refusal = refusals[String(user.name)]
      if (refusal !== undefined) throw new CouchError(refusal)
    },
    cut: ({ user }, _reply, { code }) => {
      cuts.push(`${user.name} ${code}`)
    },
  })
  t.teardown(() => calls.close())
  return { calls, seen, cuts }
}

/** Waits until it holds; the test's own time-out ends a wait for nothing. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(1)
}

t.test('those whom a doubt concerns are looked at twice, not at once', async (t) => {
  const { calls, seen, cuts } = start(t)
  for (const name of ['anna', 'bert', null]) calls.add(fake(name))
  calls.revokeAccounts(new Set(['anna', 'nobody']))
  t.strictSame(seen, [], 'who withdraws from himself is to be answered')
  await until(() => seen.length === 2)
  t.strictSame(seen, ['anna', 'anna'])
  calls.revokeAccounts('all')
  await until(() => seen.length === 8)
  t.strictSame(seen.slice(2).sort(), ['anna', 'anna', 'bert', 'bert', 'null', 'null'])
  t.strictSame(cuts, [])
})

t.test('a database concerns whoever is at it', async (t) => {
  const { calls, seen } = start(t)
  calls.add(fake('anna', 'notes'))
  calls.add(fake('bert', 'other'))
  calls.add(fake('carl'))
  calls.revokeDatabase('notes')
  await until(() => seen.length === 2)
  t.strictSame(seen, ['anna', 'anna'])
})

t.test('a refusal ends a request; that nobody knows just now does so at the second look', async (t) => {
  const refusals = {
    anna: 'wrong_credentials',
    bert: 'forbidden',
    carl: 'unavailable',
    dora: 'no_database',
    emil: 'bad_request',
  } as const
  const { calls, cuts } = start(t, refusals)
  const replies = Object.keys(refusals).map((name) => fake(name))
  for (const reply of replies) calls.add(reply)
  calls.revokeAccounts('all')
  await until(() => cuts.length >= 3)
  t.strictSame(cuts, ['anna wrong_credentials', 'bert forbidden', 'emil bad_request'])
  for (const at of [0, 1, 4]) replies[at]!.raw.emit('close')
  await until(() => cuts.length > 3)
  t.strictSame(cuts.slice(3), ['carl unavailable'])
})

t.test('a feed that hears of it by itself is looked at in the second round only', async (t) => {
  const { calls, seen } = start(t)
  calls.add(fake('feed', 'notes', true))
  calls.add(fake('upload', 'notes'))
  calls.revokeDatabase('notes')
  await until(() => seen.length === 3)
  t.strictSame([seen[0], ...seen.slice(1).sort()], ['upload', 'feed', 'upload'])
})

t.test('what has ended is held no longer', async (t) => {
  const { calls } = start(t)
  const reply = fake('anna')
  calls.add(reply)
  t.equal(calls.size, 1)
  reply.raw.emit('close')
  t.equal(calls.size, 0)
  // Of a connection that went while the answer waited behind another, nobody tells.
  for (let at = 0; at < 5000; at++) {
    const lost = fake('anna')
    lost.request.raw.socket.destroyed = true
    calls.add(lost)
  }
  t.ok(calls.size < 4096, String(calls.size))
})
