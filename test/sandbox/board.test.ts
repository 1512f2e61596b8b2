/** The numbers that threads share. */
import t from 'tap'
import { Board, type Seat } from '../../src/sandbox/board.ts'

const seat: Seat = { slot: 3, thread: 7 }

t.test('what one thread writes another reads', async (t) => {
  const board = new Board()
  const other = new Board(board.memory)
  board.limits = { timeoutMs: 5000, memory: 67_108_864 }
  t.same(other.limits, { timeoutMs: 5000, memory: 67_108_864 })
  board.limits = { timeoutMs: 86_400_000, memory: 2 ** 32 }
  t.same(other.limits, { timeoutMs: 86_400_000, memory: 2 ** 32 })
})

t.test('a thread is claimed by one at a time, and only while it is there', async (t) => {
  const board = new Board()
  t.notOk(board.claim(seat, 1), 'not there')
  board.open(seat)
  t.notOk(board.claim({ ...seat, thread: 6 }, 1), 'another thread in that place')
  t.ok(board.claim(seat, 1))
  t.notOk(board.claim(seat, 2))
  board.release(seat, 2)
  t.notOk(board.claim(seat, 2), 'released by somebody else')
  board.release(seat, 1)
  t.ok(board.claim(seat, 2))
  board.close(seat)
  board.release(seat, 2)
  t.notOk(board.claim(seat, 1), 'closed while it was claimed')
})

t.test('only a free thread can be ended for being idle', async (t) => {
  const board = new Board()
  board.open(seat)
  board.claim(seat, 1)
  t.notOk(board.closeIfFree(seat))
  board.release(seat, 1)
  t.ok(board.closeIfFree(seat))
  t.notOk(board.claim(seat, 1))
})

t.test('how long a thread is busy, or idle', async (t) => {
  const board = new Board()
  const at = (ms: number) =>
    t.capture(process, 'hrtime', (() => [Math.floor(ms / 1000), (ms % 1000) * 1e6]) as never)
  // Across the turn of a clock of 32 bits.
  at(2 ** 31 - 10)
  board.open(seat)
  at(2 ** 31 + 20)
  t.equal(board.idleMs(seat), 30)
  t.equal(board.busyMs(seat), 0)
  board.claim(seat, 1)
  at(2 ** 31 + 40)
  t.equal(board.busyMs(seat), 20)
  board.begin(seat)
  at(2 ** 31 + 41)
  t.equal(board.busyMs(seat), 1)
  t.equal(board.idleMs(seat), 0)
})

t.test('who waits is told when a thread becomes free', async (t) => {
  // To wait for a number keeps no process alive.
  const alive = setInterval(() => undefined, 60_000)
  t.teardown(() => clearInterval(alive))
  const board = new Board()
  const other = new Board(board.memory)
  const waiting = board.whenFreed(board.freed, 60_000)
  other.open(seat)
  t.ok(await waiting)
  const { freed } = board
  other.claim(seat, 1)
  other.release(seat, 1)
  t.ok(await board.whenFreed(freed, 60_000), 'it already has')
  t.notOk(await board.whenFreed(board.freed, 1), 'and after the time it was willing to wait')
})

t.test('who has waited longer goes first', async (t) => {
  const board = new Board()
  const other = new Board(board.memory)
  let ms = 2 ** 31 - 15
  t.capture(process, 'hrtime', (() => [Math.floor(ms / 1000), (ms % 1000) * 1e6]) as never)
  t.notOk(board.overtakes(1), 'nobody waits')
  other.wait(2)
  ms += 10
  t.notOk(board.overtakes(1), 'hardly longer')
  ms += 20
  t.ok(board.overtakes(1), 'also across the turn of the clock')
  t.notOk(other.overtakes(2), 'not itself')
  board.wait(1)
  ms += 1000
  other.wait(2)
  t.ok(board.overtakes(1), 'each counts from when it began to wait')
  t.notOk(other.overtakes(2))
  other.stopWaiting(2)
  t.notOk(board.overtakes(1))
  other.wait(2)
  t.ok(other.overtakes(2), 'and begins anew when it was served')
})
