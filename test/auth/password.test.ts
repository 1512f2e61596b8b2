import { createHash, pbkdf2Sync } from 'node:crypto'
import t from 'tap'
import { hashPassword, isHashed, looksHashed, verifyPassword } from '../../src/auth/password.ts'

function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex')
}

t.test('known answers', async (t) => {
  const table: [source: string, password: string, stored: string][] = [
    ['RFC 6070, 1 round', 'password', '-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1'],
    ['RFC 6070, 2 rounds', 'password', '-pbkdf2-ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957,salt,2'],
    ['RFC 6070, 4096 rounds', 'password', '-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096'],
    [
      'RFC 7914 11, cut to 32 bytes',
      'passwd',
      '-pbkdf2:sha256-55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc,salt,1',
    ],
    [
      'CouchDB 3.5, a hash of a hash',
      'secret',
      `-simple+pbkdf2:sha256-${pbkdf2Sync(sha1('secret1,234'), '1,234', 10, 32, 'sha256').toString('hex')},1,234,10`,
    ],
    ['CouchDB 1.0 form', 'secret', `-hashed-${createHash('sha1').update('secret1234').digest('hex')},1234`],
  ]
  for (const [source, password, stored] of table) {
    t.ok(isHashed(stored), source)
    t.equal(await verifyPassword(password, stored), true, source)
    t.equal(await verifyPassword(`${password}x`, stored), false, source)
    const upper = stored.replace(/[0-9a-f]{40,}/, (hex) => hex.toUpperCase())
    t.equal(await verifyPassword(password, upper), true, `${source}, in capitals`)
  }
})

t.test('a new hash has the form that CouchDB writes, and its own salt', async (t) => {
  const one = await hashPassword('sécret:,-', { iterations: 10, prf: 'sha256' })
  const two = await hashPassword('sécret:,-', { iterations: 10, prf: 'sha256' })
  t.match(one, /^-pbkdf2:sha256-[0-9a-f]{64},[0-9a-f]{32},10$/)
  t.not(one, two)
  t.equal(await verifyPassword('sécret:,-', one), true)
  t.equal(await verifyPassword('secret:,-', one), false)
  for (const [prf, length] of [
    ['sha', 40],
    ['sha224', 56],
    ['sha384', 96],
    ['sha512', 128],
  ] as const) {
    const stored = await hashPassword('x', { iterations: 1, prf })
    t.match(stored, new RegExp(`^-pbkdf2:${prf}-[0-9a-f]{${length}},`))
    t.equal(await verifyPassword('x', stored), true, prf)
  }
  await t.rejects(hashPassword('x', { iterations: 1, prf: 'md5' }), { message: /md5/ })
})

t.test('what is no hash, or half of one, lets nobody in', async (t) => {
  const key = 'a'.repeat(64)
  const table = [
    '',
    'secret',
    '-pbkdf2-',
    `-pbkdf2:sha256-${key},salt`,
    `-pbkdf2:sha256-${key},salt,0`,
    `-pbkdf2:sha256-${key},salt,10000001`,
    `-pbkdf2:sha256-${key}aa,salt,1`,
    `-pbkdf2:md5-${key},salt,1`,
    `-pbkdf2:constructor-${key},salt,1`,
    `-pbkdf2-${key},salt,1`,
    '-hashed-abc,salt',
    `-pbkdf2:sha256-${key},salt,1\n`,
  ]
  for (const stored of table) {
    t.notOk(isHashed(stored), stored)
    t.equal(await verifyPassword('secret', stored), false, stored)
    t.equal(await verifyPassword('', stored), false, stored)
  }
  t.ok(looksHashed('-pbkdf2:x'))
  t.ok(looksHashed('-hashed-x'))
  t.notOk(looksHashed('pbkdf2-x'))
})

t.test('the event loop goes on while a password is hashed', async (t) => {
  const stored = await hashPassword('x', { iterations: 1, prf: 'sha256' })
  const slow = stored.replace(/,1$/, ',200000')
  let turns = 0
  const timer = setInterval(() => {
    turns += 1
  }, 1)
  await verifyPassword('x', slow)
  clearInterval(timer)
  t.ok(turns > 3, `${turns} turns`)
})
