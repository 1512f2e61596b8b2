import { generateKeyPairSync } from 'node:crypto'
import { type JWTPayload, SignJWT, UnsecuredJWT } from 'jose'
import t, { type Test } from 'tap'
import { JwtVerifier } from '../../src/auth/jwt.ts'
import { openConfig } from '../../src/config/config.ts'
import { CouchError } from '../../src/core/errors.ts'

const NOW = 1_700_000_000_000
const SOON = NOW / 1000 + 300
const SECRET = Buffer.from('a secret that is thirty-two bytes')
const OTHER = Buffer.from('another one of thirty-two bytes !!')
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
const small = generateKeyPairSync('rsa', { modulusLength: 1024 })
const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const p521 = generateKeyPairSync('ec', { namedCurve: 'P-521' })
const pem = (pair: typeof rsa) =>
  String(pair.publicKey.export({ type: 'spki', format: 'pem' }))
    .trim()
    .replaceAll('\n', '\\n')

const KEYS: Readonly<Record<string, string>> = {
  'hmac:_default': SECRET.toString('base64'),
  'hmac:other': OTHER.toString('base64url'),
  'hmac:broken': 'not base64!',
  'rsa:r': pem(rsa),
  'rsa:small': pem(small),
  'rsa:e': pem(p256),
  'ec:e': pem(p256),
  'ec:big': pem(p521),
  'ec:broken': '-----BEGIN PUBLIC KEY-----\\nAAAA\\n-----END PUBLIC KEY-----',
}

async function setUp(t: Test) {
  const config = await openConfig({ dataDir: t.testdir(), env: {}, flags: {} })
  for (const [name, value] of Object.entries(KEYS)) await config.set('jwt_keys', name, value)
  const verifier = new JwtVerifier(config)
  verifier.watch()
  const verify = (token: string, now = NOW) => verifier.verify(token, now, '127.0.0.1')
  const reason = async (token: string, now = NOW) => {
    const error = await verify(token, now).then(
      () => null,
      (thrown: unknown) => thrown,
    )
    return error instanceof CouchError ? `${error.status} ${error.message}` : error
  }
  return { config, verify, reason }
}

type Key = Parameters<SignJWT['sign']>[0]

function sign(claims: JWTPayload, alg = 'HS256', key: Key = SECRET, kid?: string): Promise<string> {
  return new SignJWT(claims).setProtectedHeader({ alg, ...(kid !== undefined && { kid }) }).sign(key)
}

const anna = { sub: 'anna', exp: SOON }

t.test('each algorithm, with a key of its kind', async (t) => {
  const { verify } = await setUp(t)
  const cases: [alg: string, key: Key, kid?: string][] = [
    ['HS256', SECRET],
    ['HS384', SECRET],
    ['HS512', SECRET],
    ['HS256', OTHER, 'other'],
    ['RS256', rsa.privateKey, 'r'],
    ['RS384', rsa.privateKey, 'r'],
    ['RS512', rsa.privateKey, 'r'],
    ['ES256', p256.privateKey, 'e'],
    ['ES512', p521.privateKey, 'big'],
  ]
  for (const [alg, key, kid] of cases) {
    const token = await sign({ ...anna, '_couchdb.roles': ['_admin', 'r'] }, alg, key, kid)
    t.match(await verify(token), { name: 'anna', roles: ['_admin', 'r'] }, alg)
  }
})

t.test('refusals have the reasons of CouchDB', async (t) => {
  const { reason } = await setUp(t)
  const good = await sign(anna)
  const [header = '', payload = '', signature = ''] = good.split('.')
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const none = new UnsecuredJWT(anna).encode()
  const asAdmin = part({ ...anna, sub: 'admin' })
  const cases: [token: string, reason: string][] = [
    ['', '400 Malformed authentication token'],
    ['x', '400 Malformed authentication token'],
    ['a.b', '400 Malformed authentication token'],
    ['a.b.c', '400 Malformed authentication token'],
    ['a.b.c.d', '400 Malformed authentication token'],
    [`${header}.${payload}.!`, '400 Malformed authentication token'],
    [`${part([])}.${payload}.${signature}`, '400 Malformed authentication token'],
    [
      `${part({ alg: 'HS256', crit: ['x'], x: 1 })}.${payload}.${signature}`,
      '400 Malformed authentication token',
    ],
    [`${part({})}.${payload}.${signature}`, '400 Missing alg header parameter'],
    [none, '400 Invalid alg header parameter'],
    [`${part({ alg: 'None' })}.${payload}.`, '400 Invalid alg header parameter'],
    [`${part({ alg: 'toString' })}.${payload}.${signature}`, '400 Invalid alg header parameter'],
    [`${part({ alg: 'PS256' })}.${payload}.${signature}`, '400 Invalid alg header parameter'],
    [`${part({ alg: ['HS256'] })}.${payload}.${signature}`, '400 Invalid alg header parameter'],
    [`${part({ alg: 'HS256', typ: 'JOSE' })}.${payload}.${signature}`, '400 Invalid typ header parameter'],
    [`${part({ alg: 'HS256', kid: 1 })}.${payload}.${signature}`, '400 Unknown kid'],
    [`${header}.${asAdmin}.${signature}`, '400 Bad HMAC in authentication token'],
    [await sign(anna, 'HS256', OTHER), '400 Bad HMAC in authentication token'],
    [await sign(anna, 'HS256', SECRET, 'nobody'), '400 Unknown kid'],
    [await sign(anna, 'HS256', SECRET, 'broken'), '400 Unknown kid'],
    [await sign(anna, 'ES256', p256.privateKey, 'broken'), '400 Unknown kid'],
    [await sign(anna, 'ES256', p256.privateKey), '400 Unknown kid'],
    // A public key is no secret: what is signed with it as one is signed by anybody.
    [await sign(anna, 'HS256', Buffer.from(pem(rsa).replaceAll('\\n', '\n')), 'r'), '400 Unknown kid'],
    [await sign(anna, 'RS256', rsa.privateKey, 'e'), '400 Unknown kid'],
    [await sign(anna, 'ES256', p256.privateKey, 'big'), '400 Bad signature in authentication token'],
    [await sign(anna, 'ES512', p521.privateKey, 'e'), '400 Bad signature in authentication token'],
    [await sign({ sub: 'anna' }), '400 Missing exp claim'],
    [await sign({ ...anna, exp: NOW / 1000 }), '401 exp not in future'],
    [await sign({ ...anna, nbf: SOON }), '401 nbf not in past'],
    [await sign({ exp: SOON }), '401 Token missing sub claim.'],
    [await sign({ exp: SOON, sub: '' }), '401 Token missing sub claim.'],
  ]
  for (const [token, expected] of cases) t.equal(await reason(token), expected)
  const raw = async (claims: string) => {
    const { CompactSign } = await import('jose')
    const signer = new CompactSign(Buffer.from(claims, 'latin1')).setProtectedHeader({ alg: 'HS256' })
    return signer.sign(SECRET)
  }
  t.equal(await reason(await raw('[]x')), '400 Malformed authentication token')
  t.equal(await reason(await raw('null')), '400 Malformed authentication token')
  t.equal(await reason(await raw('{"sub":"\xff"}')), '400 Malformed authentication token')
  t.equal(await reason(await raw('{"sub":"anna","exp":"never"}')), '400 Invalid exp claim')
  t.equal(
    await reason(await raw(`${'['.repeat(1000)}${']'.repeat(1000)}`)),
    '400 Malformed authentication token',
  )
})

t.test('a token that was right is looked at again for its time, and when the keys change', async (t) => {
  const { config, verify, reason } = await setUp(t)
  const token = await sign(anna)
  await verify(token)
  await verify(token)
  t.equal(await reason(token, SOON * 1000), '401 exp not in future')
  await config.set('jwt_auth', 'required_claims', 'exp, {iss, "https://id.example"}')
  t.equal(await reason(token), '400 Missing iss claim')
  t.equal(await reason(await sign({ ...anna, iss: 'https://evil.example' })), '400 Invalid iss claim')
  t.equal(await reason(await sign({ ...anna, iss: 'https://id.example' })), null)
  await config.set('jwt_auth', 'required_claims', 'exp,kid,typ')
  t.equal(await reason(token), '400 Missing kid claim')
  t.equal(await reason(await sign(anna, 'HS256', OTHER, 'other')), '400 Missing typ header parameter')
  await config.set('jwt_auth', 'required_claims', 'sub')
  t.equal(await reason(await sign({ sub: 'anna' })), null)
  t.equal(
    await reason(await sign({ ...anna, exp: 1 })),
    '401 exp not in future',
    'an expiry time in a token is checked although none is required',
  )
  await config.set('jwt_auth', 'required_claims', '')
  t.equal(await reason(await sign({ sub: 'anna' })), null, 'with an empty list, no claim is required')
  await config.delete('jwt_auth', 'required_claims')
  t.equal(await reason(await sign({ sub: 'anna' })), '400 Missing exp claim')
  await t.rejects(config.set('jwt_auth', 'required_claims', 'exp {'), { code: 'bad_request' })
  await config.delete('jwt_keys', 'hmac:_default')
  t.equal(await reason(token), '400 Unknown kid')
})

t.test('claims that hold roles', async (t) => {
  const { config, verify } = await setUp(t)
  const roles = async (claims: JWTPayload) => (await verify(await sign({ ...anna, ...claims }))).roles
  t.strictSame(await roles({}), [])
  t.strictSame(await roles({ '_couchdb.roles': 'a, b ,,c' }), ['a', 'b', 'c'])
  t.strictSame(await roles({ '_couchdb.roles': ['a', 1, null, 'b'] }), ['a', 'b'])
  t.strictSame(await roles({ '_couchdb.roles': { a: 1 } }), [])
  await config.set('jwt_auth', 'roles_claim_name', 'groups')
  t.strictSame(await roles({ groups: ['g'], '_couchdb.roles': ['a'] }), ['g'])
  await config.set('jwt_auth', 'roles_claim_path', 'realm\\.access.roles')
  t.strictSame(await roles({ 'realm.access': { roles: ['deep'] }, groups: ['g'] }), ['deep'])
  t.strictSame(await roles({ 'realm.access': 'no object' }), [])
})
