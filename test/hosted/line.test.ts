import t from 'tap'
import { addressKey, Line, Lines, type Waiter } from '../../src/hosted/rate-limiter.ts'
import { FakeClock } from '../changes/helpers.ts'

/** Requests in the order in which they went on, and those that were refused. */
function record() {
  const gone: string[] = []
  const refused: [string, number | null][] = []
  const waiter = (name: string, isFirst = false): Waiter => ({
    isFirst,
    go: () => gone.push(name),
    refuse: (seconds) => refused.push([name, seconds]),
  })
  return { gone, refused, waiter }
}

const room = () => ({ waiting: 0, max: 1000 })

t.test('a burst goes at once, then so many a second', async (t) => {
  const clock = new FakeClock()
  const line = new Line(clock, room(), 10)
  const { gone, refused, waiter } = record()
  const enter = (name: string) => {
    line.enter(waiter(name), 10)
    // It ends as soon as it has begun.
    if (gone.at(-1) === name) line.leave()
  }
  for (let at = 0; at < 50; at++) enter(`burst ${at}`)
  t.equal(gone.length, 50, 'five seconds worth')
  for (let at = 0; at < 20; at++) enter(`later ${at}`)
  t.equal(gone.length, 50)
  for (let second = 1; second <= 4; second++) {
    await clock.pass(500)
    t.equal(gone.length, 50 + 5 * second, `after ${second / 2} s`)
    for (let at = 0; at < 5; at++) line.leave()
  }
  t.strictSame(refused, [])
  t.strictSame(
    gone.slice(50),
    Array.from({ length: 20 }, (_, at) => `later ${at}`),
    'in their order',
  )
  t.equal(clock.timers, 0)
  t.notOk(line.isFresh(), 'what was asked is remembered')
  await clock.pass(5000)
  t.ok(line.isFresh(), 'for as long as it counts')
})

t.test('so many at once; the next goes when one has ended', async (t) => {
  const line = new Line(new FakeClock(), room(), 1000)
  const { gone, waiter } = record()
  for (let at = 0; at < 20; at++) line.enter(waiter(String(at)), 1000)
  t.equal(gone.length, 16)
  line.leave()
  t.equal(gone.at(-1), '16')
  line.enter(waiter('checkpoint', true), 1000)
  t.equal(gone.at(-1), 'checkpoint', 'what goes first has places of its own')
})

t.test('without a limit only what is at once is bounded', async (t) => {
  const line = new Line(new FakeClock(), room(), Infinity)
  const { gone, refused, waiter } = record()
  for (let at = 0; at < 300; at++) line.enter(waiter(String(at)), Infinity)
  t.equal(gone.length, 16)
  t.equal(refused.length, 300 - 16 - 256)
  for (let at = 0; at < 256; at++) line.leave()
  t.equal(gone.length, 16 + 256)
})

t.test('only a flood is refused, and told when to come again', async (t) => {
  const clock = new FakeClock()
  const shared = room()
  const line = new Line(clock, shared, 100)
  const { gone, refused, waiter } = record()
  for (let at = 0; at < 1000; at++) line.enter(waiter(String(at)), 100)
  t.equal(gone.length, 16)
  t.equal(shared.waiting, 256)
  t.equal(refused.length, 1000 - 16 - 256)
  t.ok(refused.every(([, seconds]) => seconds !== null && seconds >= 1 && seconds <= 20))
})

t.test('none waits for more than 20 s', async (t) => {
  const clock = new FakeClock()
  const shared = room()
  const line = new Line(clock, shared, 2)
  const { gone, refused, waiter } = record()
  for (let at = 0; at < 10; at++) line.enter(waiter('burst'), 2)
  for (let at = 0; at < 10; at++) line.leave()
  for (let at = 0; at < 41; at++) line.enter(waiter(String(at)), 2)
  t.strictSame(refused, [['40', 21]], 'one that would is refused at once')
  // Others go first, so that the last of those that wait have no turn in time.
  for (let at = 0; at < 4; at++) line.enter(waiter('first', true), 2)
  for (let half = 0; half < 40; half++) {
    const before = gone.length
    await clock.pass(500)
    for (let at = before; at < gone.length; at++) line.leave()
  }
  t.strictSame(gone.slice(10, 15), ['first', 'first', 'first', 'first', '0'])
  t.strictSame(
    refused.slice(1).map(([name]) => name),
    ['36', '37', '38', '39'],
  )
  t.equal(shared.waiting, 0)
  t.equal(clock.timers, 0)
})

t.test('what goes first is never refused for its rate, and bounded all the same', async (t) => {
  const line = new Line(new FakeClock(), room(), 1)
  const { gone, refused, waiter } = record()
  for (let at = 0; at < 1100; at++) line.enter(waiter(String(at), true), 1)
  t.equal(gone.length, 5)
  t.equal(refused.length, 1100 - 5 - 1024)
  t.ok(
    refused.every(([, seconds]) => seconds === null),
    'beyond a thousand without an answer',
  )
})

t.test('a client that has gone leaves its place', async (t) => {
  const clock = new FakeClock()
  const shared = room()
  const line = new Line(clock, shared, 1000)
  const { gone, waiter } = record()
  for (let at = 0; at < 16; at++) line.enter(waiter(String(at)), 1000)
  const [impatient, first] = [waiter('impatient'), waiter('first', true)]
  line.enter(impatient, 1000)
  for (let at = 0; at < 5; at++) line.enter(at === 4 ? first : waiter('busy', true), 1000)
  line.enter(waiter('patient'), 1000)
  line.cancel(impatient)
  line.cancel(first)
  line.cancel(first)
  t.equal(shared.waiting, 1)
  for (let at = 0; at < 5; at++) line.leave()
  t.equal(gone.at(-1), 'patient')
  t.equal(shared.waiting, 0)
})

t.test('all lines together have room for so many', async (t) => {
  const shared = { waiting: 0, max: 3 }
  const { refused, waiter } = record()
  for (let tenant = 0; tenant < 2; tenant++) {
    const line = new Line(new FakeClock(), shared, 1)
    for (let at = 0; at < 7; at++) line.enter(waiter(`${tenant} ${at}`), 1)
  }
  t.strictSame(
    refused.map(([name]) => name),
    ['1 6'],
  )
})

t.test('lines that nobody stands in are forgotten', async (t) => {
  const clock = new FakeClock()
  const lines = new Lines(clock)
  const kept = lines.of('kept', 1)
  kept.enter(record().waiter('at work'), 1)
  for (let at = 0; at < 30_000; at++) lines.of(`address ${at}`, 1)
  t.equal(lines.of('kept', 1), kept, 'not one that is used')
  t.ok(lines.size < 20_001, String(lines.size))
  lines.close()
})

t.test('whose line an anonymous request stands in', async (t) => {
  t.equal(addressKey('192.0.2.7'), '@192.0.2.7')
  t.equal(addressKey('::ffff:192.0.2.7'), '@192.0.2.7')
  const ours = addressKey('2001:db8:1:2:3:4:5:6')
  t.equal(addressKey('2001:0DB8:1:2::1'), ours)
  t.equal(addressKey('2001:db8:1:2::'), ours)
  t.not(addressKey('2001:db8:1:3::1'), ours)
  t.equal(addressKey('::1'), '@0:0:0:0::/64')
})
