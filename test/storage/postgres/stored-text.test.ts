import fc from 'fast-check'
import t from 'tap'
import { storedText, textOf } from '../../../src/storage/postgres/stored-text.ts'

/** Texts in which the escaped characters are frequent. */
const texts = fc.string({
  unit: fc.constantFrom('\0', '\u0001', '\u0002', 'a', 'ü', '\u{1f600}'),
  maxLength: 12,
})

t.test('a stored text has no NUL, and is read as the text that it was', async () => {
  fc.assert(
    fc.property(texts, (text) => !storedText(text).includes('\0') && textOf(storedText(text)) === text),
  )
})

t.test('stored texts have the order of the bytes of the texts', async () => {
  const order = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b))
  fc.assert(fc.property(texts, texts, (a, b) => order(storedText(a), storedText(b)) === order(a, b)))
})

t.test('a text without such characters is stored as it is', async (t) => {
  t.equal(storedText('_design/ä b'), '_design/ä b')
})
