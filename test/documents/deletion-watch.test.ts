import t from 'tap'
import { DeletionWatch, type MassDeletion } from '../../src/documents/deletion-watch.ts'

const LIMITS = { percent: 50, documents: 20 }

/** A database with live documents, and its alarms. */
class Deleting {
  readonly told: MassDeletion[] = []
  readonly #watch: DeletionWatch
  #left: number
  at = 1_000_000

  constructor(live: number, limits = LIMITS) {
    this.#left = live
    this.#watch = new DeletionWatch(
      () => limits,
      (found) => this.told.push(found),
    )
  }

  delete(count: number, account: string | null = 'anna'): void {
    this.#left -= count
    this.#watch.note({ count, since: this.at - 2, account, left: this.#left }, this.at)
  }

  get counts(): number[] {
    return this.told.map(({ deleted }) => deleted)
  }
}

t.test('deleting half of a database within a minute raises an alarm, in one call or in many', async (t) => {
  const once = new Deleting(100)
  once.delete(50)
  t.strictSame(once.told, [{ since: 999_998, until: 1_000_000, deleted: 50, of: 100, account: 'anna' }])
  const many = new Deleting(100)
  for (let n = 0; n < 49; n++, many.at += 1000) many.delete(1)
  t.strictSame(many.told, [])
  many.delete(1)
  t.match(many.told, [{ since: 999_998, deleted: 50, of: 100 }])
})

t.test('fewer or slower deletions, or deletions in a small database, raise no alarm', async (t) => {
  const fewer = new Deleting(100)
  fewer.delete(49)
  const few = new Deleting(19)
  few.delete(19)
  const slow = new Deleting(100)
  for (let n = 0; n < 99; n++, slow.at += 1300) slow.delete(1)
  const off = new Deleting(100, { percent: 0, documents: 1 })
  off.delete(100)
  for (const { told } of [fewer, few, off]) t.strictSame(told, [])
  t.ok((slow.told[0]?.deleted ?? 0) < 60, 'only when what is left is about as much as a minute takes')
})

t.test('while deletions continue, the alarm repeats after each further quarter and at the end', async (t) => {
  const all = new Deleting(1000)
  for (let n = 0; n < 100; n++, all.at += 100) all.delete(10)
  t.strictSame(all.counts, [500, 630, 790, 990, 1000])
  t.equal(new Set(all.told.map(({ since }) => since)).size, 1)
  all.at += 60_000
  const again = new Deleting(40)
  again.delete(20)
  again.at += 60_000
  again.delete(20)
  t.strictSame(again.counts, [20, 20], 'a minute later it is another one')
})

t.test(
  'the alarm names the account with the most deletions, and begins with the first tombstone',
  async (t) => {
    const both = new Deleting(100)
    both.delete(0, 'ben')
    both.at += 10
    both.delete(20, null)
    both.delete(30, 'ben')
    t.match(both.told, [{ since: 999_998, account: 'ben', deleted: 50 }])
  },
)

t.test('a clock that was set back resets the watch', async (t) => {
  const back = new Deleting(100)
  back.delete(49)
  back.at -= 3_600_000
  back.delete(1)
  t.strictSame(back.told, [])
})
