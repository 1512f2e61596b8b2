import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { digestsOf, isSealed, parseSession, sealSession } from '../../src/auth/sessions.ts'

/** As protocol.md 11.3 says it, step by step. */
function couchCookie(name: string, seconds: number, secret: string, salt: string, digest: string): string {
  const text = `${name}:${seconds.toString(16).toUpperCase()}`
  const mac = createHmac(digest, secret + salt)
    .update(text)
    .digest('binary')
  return Buffer.concat([Buffer.from(`${text}:`), Buffer.from(mac, 'latin1')])
    .toString('base64')
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '')
}

t.test("a cookie is CouchDB's own", async (t) => {
  for (const name of ['anna', 'Änne', 'a b@c']) {
    const made = sealSession(name, (1_700_000_000).toString(16).toUpperCase(), 'secretsalt', 'sha256')
    t.equal(made, couchCookie(name, 1_700_000_000, 'secret', 'salt', 'sha256'))
    t.match(parseSession(made), { name, time: 1_700_000_000 })
  }
  const old = parseSession(couchCookie('anna', 1, 'secret', 'salt', 'sha1'))
  t.ok(old !== null && isSealed(old, 'secretsalt', ['sha256', 'sha1']))
  t.notOk(old !== null && isSealed(old, 'secretsalt', ['sha256']))
})

t.test('whatever is made is read, and opens with its own key alone', async (t) => {
  const name = fc
    .string({ unit: 'grapheme', minLength: 1 })
    .filter((text) => !text.includes(':') && text.isWellFormed() && !text.includes('\ufffd'))
  fc.assert(
    fc.property(name, fc.nat(), fc.string(), fc.string(), (name, time, key, other) => {
      const text = parseSession(sealSession(name, time.toString(16), key, 'sha256'))
      t.match(text, { name, time })
      return (
        text !== null &&
        isSealed(text, key, ['sha256']) &&
        (key === other || !isSealed(text, other, ['sha256']))
      )
    }),
  )
})

t.test('no bytes break the reader', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      const text = parseSession(Buffer.from(bytes).toString('base64url'))
      return text === null || !isSealed(text, 'key', ['sha256', 'sha1'])
    }),
  )
  for (const value of ['', '!', 'a b', 'YQ', 'YTpi', '====', 'é']) t.equal(parseSession(value), null, value)
  t.match(parseSession(Buffer.from('a:xyz:mac').toString('base64')), { time: Number.NaN })
  t.match(parseSession(Buffer.from('a:-1:mac').toString('base64')), { time: Number.NaN })
  t.match(parseSession(Buffer.from([0xff, 0x3a, 0x31, 0x3a, 1]).toString('base64')), { name: '' })
})

t.test('lists of digests', async (t) => {
  t.strictSame(digestsOf('sha256, sha'), ['sha256', 'sha1'])
  t.strictSame(digestsOf('sha512'), ['sha512'])
  t.strictSame(digestsOf('nonsense, md4'), ['sha256', 'sha1'])
})
