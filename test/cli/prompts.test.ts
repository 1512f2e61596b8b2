/** Questions on a terminal with @clack/prompts: the keys that a user types, and the results. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import t from 'tap'
import {
  askNewPassword,
  clackPrompts,
  confirmOrStop,
  type Prompts,
  readPassphrase,
  readPassword,
} from '../../src/cli/prompts.ts'
import { newPassphrase } from '../../src/vaults/livesync-setup.ts'
import { temporaryFolder } from '../helpers/server.ts'

/** Types keys one at a time, each after the screen has changed. */
async function answered<Answer>(keys: readonly string[], ask: (prompts: Prompts) => Promise<Answer>) {
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => undefined })
  const output = Object.assign(new PassThrough(), { columns: 80, rows: 20 })
  const left = [...keys]
  let screen = ''
  output.on('data', (chunk: Buffer) => {
    screen += chunk.toString()
    const key = left.shift()
    if (key !== undefined) setImmediate(() => input.write(key))
  })
  const answer = await ask(await clackPrompts({ input, output }))
  return { answer, screen }
}

const UP = '\u001b[A'
const DOWN = '\u001b[B'

t.test('text, the initial answer for Enter, and refused answers', async (t) => {
  const check = (text: string) => (text === 'x' ? 'Not this one.' : undefined)
  const typed = await answered(['w', 'o', 'r', 'k', '\r'], (prompts) =>
    prompts.text('Name?', { initial: 'notes', check }),
  )
  t.equal(typed.answer, 'work')
  t.match(typed.screen, 'Name?')
  t.equal((await answered(['\r'], (prompts) => prompts.text('Name?', { initial: 'notes' }))).answer, 'notes')
  const mended = await answered(['x', '\r', 'y', '\r'], (prompts) => prompts.text('Name?', { check }))
  t.equal(mended.answer, 'xy')
  t.match(mended.screen, 'Not this one.')
})

t.test('a password is not shown; it may be empty', async (t) => {
  const { answer, screen } = await answered(['Q', 'Z', '\r'], (prompts) => prompts.password('Password?'))
  t.equal(answer, 'QZ')
  t.notMatch(screen, /[QZ]/)
  t.equal((await answered(['\r'], (prompts) => prompts.password('Password?'))).answer, '')
})

t.test('a choice and a yes', async (t) => {
  const choices = ['a', 'b', 'c'].map((value) => ({ value, label: `Label ${value}` }))
  const chosen = await answered([DOWN, DOWN, UP, '\r'], (prompts) => prompts.choose('Which?', choices))
  t.equal(chosen.answer, 'b')
  t.equal((await answered(['\r'], (prompts) => prompts.confirm('Sure?'))).answer, false)
  t.equal((await answered(['y'], (prompts) => prompts.confirm('Sure?'))).answer, true)
})

t.test('Ctrl-C changes nothing, and the message says so', async (t) => {
  const cancelled = 'Cancelled; nothing has changed.'
  await t.rejects(
    answered(['\u0003'], (prompts) => prompts.text('Name?', {})),
    { message: cancelled },
  )
  await t.rejects(
    answered(['\u0003'], (prompts) => prompts.password('Password?')),
    { message: cancelled },
  )
})

t.test('a passphrase has no letters that look alike', async (t) => {
  t.match(newPassphrase(), /^(?:[a-hj-km-np-z2-9]{5}-){4}[a-hj-km-np-z2-9]{5}$/)
  t.not(newPassphrase(), newPassphrase())
})

t.test('a passphrase file has one line', async (t) => {
  const file = join(await temporaryFolder(t), 'vault.txt')
  const read = async (text: string | Buffer) => {
    await writeFile(file, text)
    return readPassphrase(file)
  }
  for (const text of ['of the notes ✨', ' between spaces ', 'x'.repeat(4096)])
    for (const end of text.length > 4000 ? [''] : ['', '\n', '\r\n']) t.equal(await read(text + end), text)
  t.equal(await read('\ufeffof Windows\r\n'), 'of Windows', 'a byte order mark is removed')
  const refused: [text: string | Buffer, message: RegExp][] = [
    ['', /is empty\.$/],
    [' \n', /is empty\.$/],
    ['geheim\ngeheim', /has more than one line\.$/],
    [Buffer.from([0x67, 0xff, 0x0a]), /is not valid UTF-8\.$/],
    ['geheim'.repeat(1000), /is longer than 4096 bytes\.$/],
  ]
  for (const [text, message] of refused) {
    await t.rejects(read(text), { message })
    await t.rejects(read(text), { message: /^(?!.*geheim)/ })
  }
})

t.test('a wrong file is reported, and an endless one is not read to its end', async (t) => {
  const folder = await temporaryFolder(t)
  await t.rejects(readPassphrase(join(folder, 'none')), { message: /cannot be read \(ENOENT\)\.$/ })
  await t.rejects(readPassphrase(folder), { message: /cannot be read \(EISDIR\)\.$/ })
  await t.rejects(readPassphrase('/dev/zero'), { message: /is longer than 4096 bytes\.$/ })
})

t.test('Ctrl-D and the end of input cancel, too', async (t) => {
  const cancelled = { message: 'Cancelled; nothing has changed.' }
  await t.rejects(
    answered(['\u0004'], (prompts) => prompts.text('Name?', {})),
    cancelled,
  )
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => undefined })
  const output = Object.assign(new PassThrough(), { columns: 80, rows: 20 }).resume()
  const asked = (await clackPrompts({ input, output })).confirm('Sure?')
  input.end()
  await t.rejects(asked, cancelled)
})

t.test('a new password is asked for twice', async (t) => {
  const ask = async (keys: readonly string[]) => answered(keys, (prompts) => askNewPassword(prompts, 'anna'))
  const { answer, screen } = await ask(['Q', '\r', 'Q', '\r'])
  t.equal(answer, 'Q')
  t.match(screen, 'New password for anna')
  t.notMatch(screen, /Q/)
  await t.rejects(ask(['x', '\r', 'y', '\r']), {
    message: 'The passwords do not match; nothing has changed.',
  })
  t.match((await ask(['\r', 'x', '\r', 'x', '\r'])).screen, 'The password must not be empty.')
})

t.test('the answer no changes nothing, and the message says so', async (t) => {
  await t.rejects(
    answered(['\r'], (prompts) => confirmOrStop(prompts, 'Sure?')),
    { message: 'Nothing has changed.' },
  )
})

t.test('a password on standard input', async (t) => {
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
