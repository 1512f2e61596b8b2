/** Passes of the scrub over databases whose checks are played: when they are made, where they go on, what they remember. */
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Config } from '../../src/config/config.ts'
import { CouchError } from '../../src/core/errors.ts'
import { Scrub } from '../../src/scrub/scrub.ts'
import { scrubFact } from '../../src/scrub/scrub-health.ts'
import type { Damage, DamagedPart } from '../../src/storage/damage.ts'
import type { CheckPosition } from '../../src/storage/storage-engine.ts'
import { type Claims, claimsOfOne } from '../../src/threads/claims.ts'
import type { Checker } from '../../src/threads/copies.ts'
import { FakeWallClock } from '../helpers/fake-wall-clock.ts'
import { until } from '../helpers/until.ts'

const HOUR = 3_600_000
const WEEK = 168 * HOUR
const NOTE: DamagedPart = { kind: 'revision', id: 'note', rev: '1-a' }

type ScrubDatabases = ConstructorParameters<typeof Scrub>[0]['databases']

/** Databases of four steps each, which survive a restart of the scrub. */
class PlayedDatabases {
  readonly records = new Map<string, string>()
  readonly incarnations: Map<string, number>
  readonly damaged = new Map<string, Damage>()
  readonly whole: number[] = []
  /** The steps that were made, as `name/table`. */
  readonly steps: string[] = []
  open = 0
  mostOpen = 0
  /** Called before each step. */
  onStep: (name: string, table: number) => Promise<void> = async () => undefined

  constructor(names: readonly string[]) {
    this.incarnations = new Map(names.map((name, at) => [name, at + 1]))
  }

  get databases(): ScrubDatabases {
    const { incarnations, records } = this
    const entryOf = (key: string) => `${key}`
    return {
      checks: { start: () => this.#checker() },
      async *allNames({ from = '' } = {}) {
        for (const name of [...incarnations.keys()].sort()) if (name >= from) yield name
      },
      count: async () => incarnations.size,
      has: async (name) => incarnations.has(name),
      get: async (name) => {
        const incarnation = incarnations.get(name)
        if (incarnation === undefined) throw new CouchError('no_database')
        return { incarnation } as Awaited<ReturnType<ScrubDatabases['get']>>
      },
      watchCatalog: () => () => undefined,
      noteWhole: (incarnation) => this.whole.push(incarnation),
      readRecords: async (kind, keys) => keys.map((key) => records.get(entryOf(`${kind}/${key}`)) ?? null),
      listRecords: async (kind, { after = '' }, limit) =>
        [...records]
          .filter(([key]) => key.startsWith(`${kind}/`) && key > `${kind}/${after}`)
          .map(([key, value]) => ({ kind, key: key.slice(kind.length + 1), value }))
          .slice(0, limit),
      writeRecords: async (writes) => {
        for (const { kind, key, value } of writes) {
          if (value === null) records.delete(`${kind}/${key}`)
          else records.set(`${kind}/${key}`, value)
        }
        return true
      },
    }
  }

  #checker(): Checker {
    let isClosed = false
    const check: Checker['check'] = async (name, from, onStep) => {
      const incarnation = this.incarnations.get(name)
      if (incarnation === undefined) throw new CouchError('no_database')
      this.open += 1
      this.mostOpen = Math.max(this.mostOpen, this.open)
      try {
        let table = from?.incarnation === incarnation ? from.position.table : 0
        for (; ; table++) {
          this.steps.push(`${name}/${table}`)
          await this.onStep(name, table)
          if (isClosed) throw new CouchError('unavailable')
          if (this.incarnations.get(name) !== incarnation) throw new CouchError('no_database')
          const next: CheckPosition | null = table === 3 ? null : { table: table + 1, above: 0 }
          const damage = table === 1 ? (this.damaged.get(name) ?? null) : null
          if (!(await onStep({ next, share: table / 4, damage }, incarnation)) || next === null) return
        }
      } finally {
        this.open -= 1
      }
    }
    return {
      check,
      checkServer: async () => null,
      find: async () => null,
      findContent: async () => null,
      readPiece: async () => new Uint8Array(),
      close: async () => {
        isClosed = true
      },
    }
  }
}

class FakeClock extends FakeWallClock {
  constructor() {
    super(1000 * WEEK)
  }

  /** Advances the time to the next call, and by an hour at most. */
  async tick(): Promise<void> {
    this.time += HOUR
    await this.call(Number.POSITIVE_INFINITY, 20)
  }
}

const SILENT = { info: () => undefined, warn: () => undefined, error: () => undefined }
const DUTY = { isHeld: true, onChange: () => () => undefined }

function scrubOf(
  t: Test,
  { databases }: PlayedDatabases,
  hours = 168,
  clock = new FakeClock(),
  claims: Pick<Claims, 'take'> = claimsOfOne(),
) {
  const settings = { hours }
  const config = { integer: () => settings.hours, onChange: () => () => undefined } as unknown as Config
  const scrub = new Scrub({ config, databases, claims, logger: SILENT, clock })
  t.teardown(() => scrub.close())
  return { scrub, clock, settings }
}

t.test('a pass reads every database once, one at a time, and remembers what is damaged', async (t) => {
  const names = Array.from({ length: 1000 }, (_, n) => `notes-${n}`)
  const played = new PlayedDatabases(names)
  played.damaged.set('notes-7', { count: 1, parts: [NOTE] })
  const { scrub } = scrubOf(t, played)
  const shown: number[] = []
  const found = await scrub.check({ names: null }, ({ percent }) => shown.push(percent))
  t.equal(found.checked, 1000)
  t.match(found.damaged, [{ database: 'notes-7', count: 1, parts: [NOTE] }])
  t.equal(found.damaged.length, 1)
  t.equal(played.mostOpen, 1, 'one database is open for it')
  t.equal(new Set(played.steps).size, played.steps.length, 'no step is made twice')
  t.strictSame(
    shown,
    shown.toSorted((a, b) => a - b),
  )
  t.equal(played.whole.length, 999, 'faults of whole ones are forgotten')
  t.equal((await scrub.check({ names: ['notes-1', 'notes-1'] })).checked, 1, 'a name counts once')
  const fact = scrubFact(await scrub.state())
  t.match(fact, { name: 'scrub', ok: false, damaged: [{ database: 'notes-7', count: 1 }] })
  t.match(fact.reason, /notes-7: revision 1-a of the document note\. GET/)
})

t.test('what is whole again is forgotten; what stays damaged has the time when it was found', async (t) => {
  const played = new PlayedDatabases(['a', 'b', 'c'])
  for (const name of ['a', 'b', 'c']) played.damaged.set(name, { count: 1, parts: [NOTE] })
  const { scrub, clock } = scrubOf(t, played)
  const [first] = (await scrub.check({ names: null })).damaged
  clock.time += WEEK
  const other: DamagedPart = { kind: 'counters' }
  played.damaged.set('a', { count: 2, parts: [other, NOTE] })
  played.damaged.delete('b')
  played.incarnations.delete('c')
  const { damaged } = await scrub.check({ names: null })
  t.strictSame(
    damaged.map(({ database, parts }) => [database, ...parts.map(({ kind, since }) => [kind, since])]),
    [['a', ['counters', clock.time], ['revision', first?.parts[0]?.since]]],
  )
  t.notOk(played.records.has('damage/c'), 'nothing is kept of a deleted database')
})

t.test('a damaged database that was restored is looked at again soon', async (t) => {
  const played = new PlayedDatabases(['a', 'b'])
  played.damaged.set('a', { count: 1, parts: [NOTE] })
  const { scrub, clock } = scrubOf(t, played)
  scrub.startSchedule(DUTY)
  const [{ since } = { since: 0 }] = (await scrub.check({ names: null })).damaged[0]?.parts ?? []
  played.incarnations.set('a', 100)
  played.steps.splice(0)
  await clock.tick()
  while (scrub.task !== null) await turn()
  t.strictSame(played.steps, ['a/0', 'a/1', 'a/2', 'a/3'])
  t.match((await scrub.state()).damaged, [{ database: 'a', incarnation: 100, parts: [{ since }] }])
  await clock.tick()
  t.equal(played.steps.length, 4, 'the steps are made once')
  played.damaged.delete('a')
  played.incarnations.set('a', 101)
  await clock.tick()
  while (scrub.task !== null) await turn()
  t.strictSame((await scrub.state()).damaged, [])
})

t.test('a restart goes on where it was, with what was found before', async (t) => {
  const played = new PlayedDatabases(['a', 'b', 'c'])
  played.damaged.set('b', { count: 1, parts: [NOTE] })
  const first = scrubOf(t, played)
  const reached = Promise.withResolvers<void>()
  played.onStep = async (name, table) => {
    if (`${name}/${table}` === 'b/2') {
      reached.resolve()
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  const ended = first.scrub.check({ names: null })
  await reached.promise
  await first.scrub.close()
  await t.rejects(ended, { code: 'unavailable' })
  const before = played.steps.splice(0)
  t.strictSame(before.slice(-3), ['b/0', 'b/1', 'b/2'])

  played.onStep = async () => undefined
  const second = scrubOf(t, played)
  second.scrub.startSchedule(DUTY)
  await second.clock.tick()
  while (second.scrub.task !== null || (await second.scrub.state()).last === null) await turn()
  t.equal(played.steps[0], 'b/2')
  t.equal(played.steps.at(-1), 'c/3')
  t.match((await second.scrub.state()).damaged, [{ database: 'b', parts: [NOTE] }])
})

t.test('a pass is made once in the interval; none is made while it is 0', async (t) => {
  const played = new PlayedDatabases(['a'])
  const { scrub, clock, settings } = scrubOf(t, played)
  scrub.startSchedule(DUTY)
  const made = () => played.steps.filter((step) => step === 'a/0').length
  const pass = async (hours: number) => {
    for (let n = 0; n < hours; n++) {
      await clock.tick()
      while (scrub.task !== null) await turn()
    }
  }
  await pass(3 * 168)
  t.equal(made(), 3)
  clock.time -= 52 * WEEK
  await pass(2)
  t.equal(made(), 4, 'a clock that is set back does not stop it')
  settings.hours = 0
  await pass(2 * 168)
  t.equal(made(), 4)
  t.match(scrubFact(await scrub.state()), { ok: true, reason: /scrub_interval/ })
})

t.test('deleted and unreadable databases do not end a pass', async (t) => {
  const played = new PlayedDatabases(['a', 'b', 'c', 'd'])
  played.onStep = async (name, table) => {
    if (name === 'a' && table === 1) played.incarnations.delete('a')
    if (name === 'b') throw new CouchError('damaged_file')
    if (name === 'c' && table === 1) played.incarnations.set('c', 50)
  }
  const { scrub } = scrubOf(t, played)
  const { damaged } = await scrub.check({ names: null })
  t.match(damaged, [{ database: 'b', parts: [{ kind: 'file' }] }])
  t.equal(damaged.length, 1)
  t.strictSame(
    played.steps.filter((step) => step.startsWith('c/')),
    ['c/0', 'c/1', 'c/0', 'c/1', 'c/2', 'c/3'],
    'a replaced one is begun again',
  )
  t.equal(played.steps.at(-1), 'd/3')
})

t.test('a thread that dies is no damage: the pass fails, and goes on later', async (t) => {
  const played = new PlayedDatabases(['a', 'b'])
  let isDead = true
  played.onStep = async (name) => {
    if (name === 'b' && isDead) throw new CouchError('unavailable')
  }
  const { scrub } = scrubOf(t, played)
  await t.rejects(scrub.check({ names: null }), { code: 'unavailable' })
  t.strictSame((await scrub.state()).damaged, [])
  t.match(scrubFact(await scrub.state()), { ok: false, reason: /failed/ })
  isDead = false
  await scrub.check({ names: null })
  t.match(scrubFact(await scrub.state()), { ok: true })
})

t.test('a check on request goes before a pass, which then goes on', async (t) => {
  const played = new PlayedDatabases(['a', 'b', 'c'])
  const { scrub, clock } = scrubOf(t, played)
  const reached = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  let times = 0
  played.onStep = async (name, table) => {
    if (`${name}/${table}` !== 'b/2' || times++ > 0) return
    reached.resolve()
    await goOn.promise
  }
  scrub.startSchedule(DUTY)
  await clock.tick()
  await reached.promise
  const asked = scrub.check({ names: ['c'] })
  await turn()
  await t.rejects(scrub.check({ names: ['a'] }), { code: 'conflict' })
  goOn.resolve()
  t.equal((await asked).checked, 1)
  for (let last = null; last === null; last = (await scrub.state()).last) await clock.tick()
  const after = played.steps.slice(played.steps.indexOf('b/2') + 1)
  t.strictSame(after, ['c/0', 'c/1', 'c/2', 'c/3', 'b/2', 'b/3', 'c/0', 'c/1', 'c/2', 'c/3'])
  await t.rejects(scrub.check({ names: ['none'] }), { code: 'not_found' })
})

t.test('while another node makes a pass, this one makes none, and that is no failure', async (t) => {
  const played = new PlayedDatabases(['a'])
  let isFree = false
  const own = claimsOfOne()
  const claims = { take: async (name: string) => (isFree ? own.take(name) : null) }
  const { scrub, clock } = scrubOf(t, played, 1, new FakeClock(), claims)
  await t.rejects(scrub.check({ names: null }), { code: 'conflict', message: /Another node/ })
  t.equal((await scrub.check({ names: ['a'] })).checked, 1, 'one database is checked at once')
  scrub.startSchedule(DUTY)
  for (let hours = 0; hours < 5; hours++) await clock.tick()
  t.match(await scrub.state(), { failure: null, checked: 1, last: null })
  isFree = true
  await until(async () => {
    await clock.tick()
    return (await scrub.state()).last !== null
  })
})
