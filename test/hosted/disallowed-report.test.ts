/** The look through a data folder from before hosted mode: what is logged, and that it ends. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { DisallowedContent } from '../../src/documents/database.ts'
import { reportDisallowed } from '../../src/hosted/disallowed-report.ts'
import type { DatabaseHandle } from '../../src/threads/databases.ts'

const NOTHING: DisallowedContent = { designDocs: 0, attachments: 0 }

/** @param answers by database; a function is called when it is asked */
function look(answers: Readonly<Record<string, DisallowedContent | (() => Promise<DisallowedContent>)>>) {
  const names = Object.keys(answers)
  const warnings: { facts: Record<string, unknown>; text: string }[] = []
  let ended: (facts: object) => void
  const end = new Promise<object>((resolve) => {
    ended = resolve
  })
  const databases = {
    async *allNames() {
      yield* names
    },
    has: async (name: string) => names.includes(name),
    get: async (name: string) => {
      const answer = answers[name]
      const countDisallowed = typeof answer === 'function' ? answer : async () => answer
      return { countDisallowed } as unknown as DatabaseHandle
    },
  }
  const stop = reportDisallowed(databases, {
    info: (facts) => ended(facts),
    warn: (facts, text) => warnings.push({ facts: facts as Record<string, unknown>, text }),
  })
  return { names, warnings, end, stop }
}

t.test('each database that holds something is named with how much', async (t) => {
  const { warnings, end } = look({
    a: NOTHING,
    b: { designDocs: 2, attachments: 0 },
    c: { designDocs: 0, attachments: 10_000 },
  })
  t.same(await end, { databases: 3, holding: 2 })
  t.match(warnings, [
    { facts: { database: 'b', designDocs: 2, attachments: 0 }, text: /2 design documents and 0 attachments/ },
    { facts: { database: 'c' }, text: /0 design documents and 10000 or more attachments/ },
  ])
})

t.test('a hundred lines, and then the number', async (t) => {
  const many = Array.from({ length: 103 }, (_, n) => [`db${n}`, { designDocs: 1, attachments: 0 }])
  const { warnings, end } = look(Object.fromEntries(many))
  t.same(await end, { databases: 103, holding: 103 })
  t.equal(warnings.length, 101)
  t.match(warnings.at(-1)?.text, /more databases hold some/)
})

t.test('one that cannot be read is told of, one that is deleted meanwhile is not', async (t) => {
  const fault = new CouchError('internal_server_error')
  const failing = async () => {
    throw fault
  }
  const looked = look({
    broken: failing,
    gone: async () => {
      looked.names.splice(looked.names.indexOf('gone'), 1)
      throw new CouchError('no_database')
    },
    last: NOTHING,
  })
  await looked.end
  t.match(looked.warnings, [{ facts: { database: 'broken', err: fault } }])
})

t.test('it ends when the server does, also in the midst of a rest', async (t) => {
  let asked = 0
  const counted = async () => {
    asked += 1
    return NOTHING
  }
  const { stop } = look(Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`db${n}`, counted])))
  await stop()
  t.equal(asked, 1)
})
