/** How far a command is, on a terminal and elsewhere. */
import { PassThrough } from 'node:stream'
import t from 'tap'
import { progressBar } from '../../src/cli/progress-bar.ts'
import { tableText } from '../../src/cli/size-command.ts'

function screen(isTTY: boolean) {
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 50 })
  return { stream, text: () => String(stream.read() ?? '') }
}

t.test('on a terminal it is one line, which goes in the end', (t) => {
  const { stream, text } = screen(true)
  const bar = progressBar(stream)
  bar.show(40, `1/2 no${'\u001b'}[31mtes ${'x'.repeat(90)}`)
  const line = text()
  t.match(line, '[############------------------] 40 % 1/2 no')
  t.notMatch(line, '\u001b[31m', 'a name moves no cursor')
  t.notMatch(line, 'x'.repeat(50), 'it is no longer than the terminal is wide')
  t.notMatch(line, '\n')
  bar.show(250, 'the rest')
  bar.end()
  const last = text()
  t.match(last, '[##############################] 100 % the rest')
  t.ok(last.endsWith('\u001b[2K'), 'it is taken away')
  t.notMatch(line + last, '\u001b[?', 'no mode of the terminal is changed: Ctrl-C would leave it so')
  bar.end()
  t.equal(text(), '')
  t.end()
})

t.test('where nobody knows how much there is, it is no bar', (t) => {
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

t.test('elsewhere it is a plain line now and then', (t) => {
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

t.test('columns of a table stand below each other', (t) => {
  t.equal(tableText([['a', 'bcd', 'e'], ['fgh', '', 'i'], ['j']]), 'a    bcd  e\nfgh       i\nj\n')
  t.equal(tableText([]), '')
  t.end()
})
