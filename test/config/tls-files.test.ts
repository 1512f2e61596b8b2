/** What the files of `[ssl]` must be, and what is said of those that do not serve. */
import { createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openConfig } from '../../src/config/config.ts'
import { factsOf, readTlsPair, tlsFilesState } from '../../src/config/tls-files.ts'
import { certificateFiles, makeCertificate } from '../helpers/certificates.ts'
import { temporaryFolder } from '../helpers/server.ts'

async function configOf(t: Test, ssl: Record<string, string>) {
  const config = await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: {} })
  for (const [key, value] of Object.entries(ssl)) await config.set('ssl', key, value)
  return config
}

/** @returns the paths of a text's files by the names of their texts */
async function filesOf<T extends Record<string, string>>(t: Test, texts: T): Promise<T> {
  const folder = await temporaryFolder(t)
  const paths: Record<string, string> = {}
  for (const [name, text] of Object.entries(texts)) {
    paths[name] = join(folder, name)
    await writeFile(join(folder, name), text)
  }
  return paths as T
}

const PASSWORD = 'of the key'

t.test('pairs that serve', async (t) => {
  const { cert, key } = await makeCertificate({ names: ['notes.example.org'] })
  const locked = createPrivateKey(key).export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: PASSWORD,
  }) as string
  const other = await makeCertificate()
  const files = await filesOf(t, { cert, key, locked, chain: other.cert })
  const plain = await readTlsPair(await configOf(t, { cert_file: files.cert, key_file: files.key }))
  t.match(factsOf(plain).names, 'DNS:notes.example.org')
  const behind = { cert_file: files.cert, key_file: files.locked, password: PASSWORD }
  t.match(await readTlsPair(await configOf(t, behind)), { passphrase: PASSWORD })
  const apart = { cert_file: files.cert, key_file: files.key, cacert_file: files.chain }
  t.equal((await readTlsPair(await configOf(t, apart))).cert.match(/BEGIN CERTIFICATE/g)?.length, 2)
})

t.test('pairs that do not, and nothing of what is in them is told', async (t) => {
  const { cert, key } = await makeCertificate()
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const rsa = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
  const format = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: PASSWORD } as const
  const locked = createPrivateKey(key).export(format) as string
  const weak = await makeCertificate({ rsaBits: 1024 })
  const short = { weak: weak.cert, weakKey: weak.key }
  const texts = {
    ...short,
    cert,
    key,
    rsa,
    locked,
    none: 'no certificate',
    empty: '',
    huge: 'x'.repeat(2 ** 20 + 1),
  }
  const files = await filesOf(t, texts)
  const { certFile } = await certificateFiles(t)
  const cases = [
    [{ cert_file: certFile, key_file: files.key }, /the key does not belong to the certificate/],
    [{ cert_file: files.cert, key_file: files.rsa }, /the key does not belong to the certificate/],
    [{ cert_file: files.none, key_file: files.key }, /one of them is not a PEM file/],
    [{ cert_file: files.cert, key_file: files.none }, /cannot be used/],
    [{ cert_file: files.empty, key_file: files.key }, /cannot be used/],
    [{ cert_file: files.cert, key_file: files.locked }, /the key needs a password \(ssl\/password\)/],
    [
      { cert_file: files.cert, key_file: files.locked, password: 'secret guess' },
      /the password of the key is wrong/,
    ],
    [
      { cert_file: files.weak, key_file: files.weakKey },
      /the certificate's key is too short: RSA needs at least 2,048 bits/,
    ],
    [
      { cert_file: files.cert, key_file: files.key, cacert_file: files.weak },
      /the key of a certificate of ssl\/cacert_file is too short/,
    ],
    [{ cert_file: files.huge, key_file: files.key }, /ssl\/cert_file: .* cannot be read \(EFBIG\)/],
    [{ cert_file: `${files.cert}.none`, key_file: files.key }, /ssl\/cert_file: .* \(ENOENT\)/],
    [{ cert_file: files.cert }, /ssl\/key_file does not name a file/],
    [{ key_file: files.key }, /ssl\/cert_file does not name a file/],
  ] as const
  for (const [ssl, reason] of cases) {
    const error = await readTlsPair(await configOf(t, ssl)).catch((thrown: Error) => thrown)
    t.match(error, { name: 'StartError', message: reason }, String(reason))
    t.notMatch(String((error as Error).message), /BEGIN|secret guess/)
  }
})

t.test('a change is seen', async (t) => {
  const { certFile, keyFile } = await certificateFiles(t)
  const config = await configOf(t, { cert_file: certFile, key_file: keyFile })
  const first = await tlsFilesState(config)
  t.equal(await tlsFilesState(config), first)
  await writeFile(certFile, 'something else')
  const second = await tlsFilesState(config)
  t.not(second, first)
  await config.set('ssl', 'cert_file', `${certFile}.none`)
  t.not(await tlsFilesState(config), second)
})
