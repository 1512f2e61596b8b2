/** The output of commands: progress, tables and QR codes. */
import { PassThrough } from 'node:stream'
import t from 'tap'
import { encode } from 'uqr'
import { progressBar } from '../../src/cli/progress-bar.ts'
import { tableText } from '../../src/cli/size-command.ts'
import { qrCode } from '../../src/cli/vault-report.ts'
import { readQrCode } from './qr-reader.ts'

function screen(isTTY: boolean) {
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 50 })
  return { stream, text: () => String(stream.read() ?? '') }
}

t.test('on a terminal, progress is one line, which is removed at the end', (t) => {
  const { stream, text } = screen(true)
  const bar = progressBar(stream)
  bar.show(40, `1/2 no${'\u001b'}[31mtes ${'x'.repeat(90)}`)
  const line = text()
  t.match(line, '[############------------------] 40 % 1/2 no')
  t.notMatch(line, '\u001b[31m', 'escape sequences of a name are removed')
  t.notMatch(line, 'x'.repeat(50), 'it is no longer than the terminal is wide')
  t.notMatch(line, '\n')
  bar.show(250, 'the rest')
  bar.end()
  const last = text()
  t.match(last, '[##############################] 100 % the rest')
  t.ok(last.endsWith('\u001b[2K'), 'the progress line is erased')
  t.notMatch(line + last, '\u001b[?', 'no mode of the terminal is changed: Ctrl-C would leave it so')
  bar.end()
  t.equal(text(), '')
  t.end()
})

t.test('without a known total there is no bar', (t) => {
  const { stream, text } = screen(true)
  const bar = progressBar(stream)
  bar.show(null, '12.3 MB')
  const line = text()
  t.match(line, '12.3 MB')
  t.notMatch(line, '[-')
  bar.end()
  t.notMatch(text(), '[#')
  t.end()
})

t.test('without a terminal, progress is a plain line at intervals', (t) => {
  const { stream, text } = screen(false)
  let now = 0
  const bar = progressBar(stream, () => now)
  bar.show(1, 'notes')
  now = 29_000
  bar.show(20.7, 'notes')
  now = 31_000
  bar.show(21.7, 'notes')
  bar.show(22, 'notes')
  now = 62_000
  bar.show(null, '5 MB')
  bar.end()
  t.equal(text(), '21 % notes\n5 MB\n')
  t.end()
})

t.test('the columns of a table are aligned', (t) => {
  t.equal(tableText([['a', 'bcd', 'e'], ['fgh', '', 'i'], ['j']]), 'a    bcd  e\nfgh       i\nj\n')
  t.equal(tableText([]), '')
  t.end()
})

/** Whether the upper and the lower half of each character is bright. The text is bright white on black. */
const HALVES: Readonly<Record<string, readonly [upper: boolean, lower: boolean]>> = {
  '█': [true, true],
  '▀': [true, false],
  '▄': [false, true],
  ' ': [false, false],
}

const LINE = new RegExp(`^${'\u001b'}\\[40;97m([█▀▄ ]+)${'\u001b'}\\[0m$`)

/** The rows of modules that a terminal shows; dark is true. */
function shownBy(lines: string): boolean[][] {
  return lines
    .replace(/\n$/, '')
    .split('\n')
    .flatMap((line) => {
      const [, text = ''] = LINE.exec(line) ?? []
      const halves = [...text].map((letter) => HALVES[letter]!)
      return [halves.map(([upper]) => !upper), halves.map(([, lower]) => !lower)]
    })
}

/** @param columns large enough by default */
function code(text: string, columns = 1000): boolean[][] {
  const drawn = qrCode(text, columns)
  if (!('lines' in drawn)) throw new Error(`needs ${drawn.needs}`)
  const rows = shownBy(drawn.lines)
  // With an odd number of modules, the lower half of the last line is empty, and as dark as the terminal.
  const size = rows[0]!.length
  if (rows.length > size) rows.pop()
  return rows
}

/** The width of the quiet zone that ISO 18004 requires, in modules. */
const QUIET = 4

t.test('a QR code has the required quiet zone, and can be read', async (t) => {
  const texts = [
    'https://work:stt_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG@notes.example.com:443/work',
    'http://j%C3%B6rg:p%40ss@192.168.1.10:5984/a%2Fb',
    'jörg 🔑',
    ...[1, 17, 100, 230, 500, 800, 1300, 1900, 2331].map((length) =>
      `obsidian://${'aB3%'.repeat(600)}`.slice(0, length),
    ),
  ]
  for (const text of texts) {
    const rows = code(text)
    const size = rows.length
    const inner = rows.slice(QUIET, size - QUIET).map((row) => row.slice(QUIET, size - QUIET))
    const around = rows.flatMap((row, y) =>
      row.filter((_, x) => Math.min(x, y, size - 1 - x, size - 1 - y) < QUIET),
    )
    t.notOk(around.includes(true), `bright around ${text.slice(0, 40)}`)
    t.strictSame(inner, encode(text, { ecc: 'L', border: 0 }).data)
    t.equal(readQrCode(inner), text)
  }
})

t.test('a QR code that does not fit is not drawn, and the needed size is reported', async (t) => {
  const text = 'https://work:stt_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG@notes.example.com:443/work'
  const { needs } = qrCode(text, 20) as { needs: number }
  t.equal(code(text, needs).length, needs)
  t.strictSame(qrCode(text, needs - 1), { needs })
  t.strictSame(qrCode('x'.repeat(2332), 1000), { needs: null })
})
