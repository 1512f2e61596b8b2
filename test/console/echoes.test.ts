import t from 'tap'
import { Echoes } from '../../console/src/parts/json-editor/echoes.ts'

t.test('texts that come back late do not replace what was typed since', async (t) => {
  const echoes = new Echoes()
  t.notOk(echoes.isEcho('a'), 'the owner sets the first text')
  for (const text of ['ab', 'abc', 'abcd']) echoes.send(text)
  t.ok(echoes.isEcho('ab'))
  t.ok(echoes.isEcho('abcd'), 'renders may be skipped')
  t.ok(echoes.isEcho('abcd'), 'a repeated text is an echo')
  t.notOk(echoes.isEcho('abc'), 'an older text is set on purpose')
  t.notOk(echoes.isEcho('abcd'), 'texts after it are no echoes')
})
