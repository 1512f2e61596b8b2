/** Passphrases that are made, and those that come in a file. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { newPassphrase, readPassphrase } from '../../src/cli/secret-input.ts'
import { temporaryFolder } from '../helpers/server.ts'

t.test('one is made of letters that are not mistaken for each other', async (t) => {
  t.match(newPassphrase(), /^(?:[a-hj-km-np-z2-9]{5}-){4}[a-hj-km-np-z2-9]{5}$/)
  t.not(newPassphrase(), newPassphrase())
})

t.test('one in a file is its one line', async (t) => {
  const file = join(await temporaryFolder(t), 'vault.txt')
  const read = async (text: string | Buffer) => {
    await writeFile(file, text)
    return readPassphrase(file)
  }
  for (const text of ['of the notes ✨', ' between spaces ', 'x'.repeat(4096)])
    for (const end of text.length > 4000 ? [''] : ['', '\n', '\r\n']) t.equal(await read(text + end), text)
  t.equal(await read('\ufeffof Windows\r\n'), 'of Windows', 'an editor says that it is UTF-8')
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

t.test('what is no such file is told, and what has no end is not read to it', async (t) => {
  const folder = await temporaryFolder(t)
  await t.rejects(readPassphrase(join(folder, 'none')), { message: /cannot be read \(ENOENT\)\.$/ })
  await t.rejects(readPassphrase(folder), { message: /cannot be read \(EISDIR\)\.$/ })
  await t.rejects(readPassphrase('/dev/zero'), { message: /is longer than 4096 bytes\.$/ })
})
