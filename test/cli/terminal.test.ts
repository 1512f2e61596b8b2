import { EventEmitter } from 'node:events'
import { Readable } from 'node:stream'
import t from 'tap'
import { askPassword, readPassword } from '../../src/cli/prompts.ts'
import { Terminal } from '../../src/cli/terminal.ts'

/** A keyboard that types what it is told to, and a screen. */
function setUp() {
  const events = new EventEmitter()
  const state = { screen: '', isRaw: false, isPaused: false }
  const keyboard = {
    setRawMode: (isRaw: boolean) => {
      state.isRaw = isRaw
    },
    setEncoding: () => undefined,
    on: (event: string, listener: (typed: string) => void) => events.on(event, listener),
    resume: () => {
      state.isPaused = false
    },
    pause: () => {
      state.isPaused = true
    },
  }
  const screen = {
    write: (text: string) => {
      state.screen += text
      if (!state.isRaw) throw new Error('what is typed now is echoed')
      return true
    },
  }
  const terminal = new Terminal(keyboard, screen)
  return {
    terminal,
    state,
    type: (typed: string) => events.emit('data', typed),
    end: () => events.emit('end'),
  }
}

t.test('a password is not shown, and the terminal is left as it was', async (t) => {
  const { terminal, state, type } = setUp()
  t.ok(state.isPaused)
  const asked = terminal.ask(['Password: '], false)
  t.strictSame([state.isRaw, state.isPaused], [true, false])
  for (const key of 'geheim') type(key)
  type('\r')
  t.strictSame(await asked, ['geheim'])
  t.strictSame(state, { screen: 'Password: \r\n', isRaw: false, isPaused: true })
})

t.test('what is typed', async (t) => {
  const table: [typed: string, answer: string, screen: string][] = [
    ['a b\r', 'a b', 'a b'],
    ['ab\n', 'ab', 'ab'],
    ['ab\u007fc\r', 'ac', 'ab\b \bc'],
    ['\b\u007fx\r', 'x', 'x'],
    ['ab\u0015c\r', 'c', 'ab\b \b\b \bc'],
    ['a😀\u007f\r', 'a', 'a😀\b \b'],
    ['a\u001b[Db\u001bOPc\u001b[3~\t\u0000\r', 'abc', 'abc'],
    ['ab\u0004', 'ab', 'ab'],
    ['\r', '', ''],
  ]
  for (const [typed, answer, screen] of table) {
    const { terminal, state, type } = setUp()
    type(typed)
    t.strictSame(await terminal.ask(['? '], true), [answer], JSON.stringify(typed))
    t.equal(state.screen, `? ${screen}\r\n`)
  }
})

t.test('what is typed too early belongs to the next question', async (t) => {
  const { terminal, type } = setUp()
  type('one\rtwo\rthree\r')
  t.strictSame(await terminal.ask(['1', '2'], false), ['one', 'two'])
  t.strictSame(await terminal.ask(['3'], false), ['three'])
})

t.test('it can be cancelled', async (t) => {
  for (const typed of ['\u0003', 'abc\u0003', '\u0004']) {
    const { terminal, state, type } = setUp()
    type(typed)
    await t.rejects(terminal.ask([''], false), { message: 'Cancelled; nothing has changed.' })
    t.notOk(state.isRaw)
  }
  const { terminal, end } = setUp()
  const asked = terminal.ask([''], false)
  end()
  await t.rejects(asked, { message: /^Cancelled/ })
})

t.test('a new password is asked for twice', async (t) => {
  const ask = (typed: string) => {
    const { terminal, type } = setUp()
    type(typed)
    return askPassword(terminal, 'anna')
  }
  t.equal(await ask('x y\rx y\r'), 'x y')
  await t.rejects(ask('x\ry\r'), { message: 'The passwords do not match; nothing has changed.' })
  await t.rejects(ask('\r\r'), { message: 'The password must not be empty.' })
})

t.test('a password on the standard input', async (t) => {
  const read = (...chunks: (string | Buffer)[]) =>
    readPassword(Readable.from(chunks.map((each) => Buffer.from(each))))
  t.equal(await read('geheim'), 'geheim')
  t.equal(await read('gehe', 'im\n'), 'geheim')
  t.equal(await read(' geh eim \r\n'), ' geh eim ')
  const umlaut = Buffer.from('ü')
  t.equal(await read(umlaut.subarray(0, 1), umlaut.subarray(1)), 'ü')
  const table: [given: string | Buffer, message: RegExp][] = [
    ['', /no password/],
    ['\n', /no password/],
    ['a\nb\n', /has more than one line/],
    ['a\n\n', /has more than one line/],
    [Buffer.from([0xff]), /not valid UTF-8/],
    ['x'.repeat(4097), /longer than 4096 bytes/],
  ]
  for (const [given, message] of table) await t.rejects(read(given), { message })
})
