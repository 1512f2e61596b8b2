import t from 'tap'
import { type Alarms, openAlarms } from '../../src/metrics/alarms.ts'
import type { RecordWrite, ServerRecord } from '../../src/storage/catalog.ts'

/** Records in memory, and the databases that there are. */
class Kept {
  readonly rows = new Map<string, ServerRecord>()
  readonly incarnations = new Map([
    ['notes', 1],
    ['other', 2],
  ])
  readonly warned: string[] = []
  readonly failed: string[] = []
  isBroken = false
  keeps = true

  open(): Promise<Alarms> {
    return openAlarms({
      records: {
        readRecords: async () => [...this.rows.values()],
        writeRecords: async (writes: readonly RecordWrite[]) => {
          if (this.isBroken) throw new Error('no disk')
          for (const { kind, key, value } of writes) {
            if (value === null) this.rows.delete(key)
            else this.rows.set(key, { kind, key, value })
          }
        },
      },
      logger: {
        warn: (_facts: object, text: string) => this.warned.push(text),
        error: (_facts: object, text: string) => this.failed.push(text),
      } as never,
      incarnationOf: (name) => this.incarnations.get(name),
      keepsVersions: () => this.keeps,
    })
  }
}

const NOTES = { name: 'notes', incarnation: 1 }
const found = (since: number) => ({ since, until: since + 5, deleted: 40, of: 60, account: 'anna' })

t.test('an alarm is kept over restarts until it is dismissed', async (t) => {
  const kept = new Kept()
  const alarms = await kept.open()
  const device = { token: 'phone', client: 'Obsidian', address: '::1' }
  alarms.raise(NOTES, found(1000), device)
  alarms.raise(NOTES, { ...found(1000), deleted: 60 }, null)
  await alarms.close()
  t.equal(kept.warned.length, 2)
  t.match(
    kept.warned[1],
    "their old versions are kept; to restore them: settee rewind 'notes' --to 1970-01-01T00:00:01.000Z",
  )
  const again = await kept.open()
  t.match(again.list(), [{ database: 'notes', deleted: 60, device }])
  t.equal(again.list().length, 1, 'one for all that was told of it')
  t.strictSame(again.list('other'), [])
  t.match(await again.health(), [{ name: 'alarms', ok: true, count: 1 }])
  kept.keeps = false
  again.raise(NOTES, found(1000), null)
  t.match(kept.warned[2], 'their old versions are there until the next compaction; to restore them')
  const [alarm] = again.list()
  t.equal(await again.dismiss(alarm?.id ?? '', 'other'), false)
  t.equal(await again.dismiss(alarm?.id ?? '', 'notes'), true)
  t.equal(await again.dismiss(alarm?.id ?? ''), false)
  t.equal(kept.rows.size, 0)
})

t.test('they are bounded, and go with their database', async (t) => {
  const kept = new Kept()
  const alarms = await kept.open()
  for (let n = 0; n < 30; n++) alarms.raise(NOTES, found(1000 + n), null)
  alarms.raise({ name: 'other', incarnation: 2 }, found(1), null)
  t.equal(alarms.list('notes').length, 20)
  t.equal(alarms.list('notes')[0]?.since, 1029, 'the newest first')
  kept.incarnations.set('notes', 3)
  t.strictSame(
    alarms.list().map(({ database }) => database),
    ['other'],
  )
  alarms.raise({ name: 'notes', incarnation: 3 }, found(7), null)
  await alarms.close()
  t.equal(kept.rows.size, 2)
})

t.test('a record that is none, and a disk that fails, are no end of it', async (t) => {
  const kept = new Kept()
  kept.rows.set('x', { kind: 'alarm', key: 'x', value: '{' })
  kept.rows.set('y', { kind: 'alarm', key: 'y', value: '{"database":"notes"}' })
  const alarms = await kept.open()
  t.strictSame(alarms.list(), [])
  kept.isBroken = true
  alarms.raise(NOTES, found(1), null)
  await alarms.close()
  t.equal(alarms.list().length, 1)
  t.equal(kept.failed.length, 1)
})
