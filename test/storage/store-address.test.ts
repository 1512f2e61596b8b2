/** Addresses of a PostgreSQL, as operators write them. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { problemOfStoreUrl, readStoreAddress, storeName } from '../../src/storage/store-address.ts'
import { temporaryFolder } from '../helpers/server.ts'

const read = (url: string) => readStoreAddress(url, null)

t.test(
  'a server of this machine needs no TLS, and any other one is checked unless the address says otherwise',
  async (t) => {
    const modes = [
      ['postgres://u@127.0.0.1/db', null],
      ['postgres://u@localhost:5433/db', null],
      ['postgres://u@%2Frun%2Fpostgresql/db', null],
      ['postgres://u@192.0.2.1/db', 'full'],
      ['postgres://u@db.example/db', 'full'],
      ['postgres://u@db.example/db?sslmode=disable', null],
      ['postgres://u@db.example/db?sslmode=require', 'none'],
      ['postgres://u@db.example/db?sslmode=verify-ca', 'ca'],
      ['postgres://u@127.0.0.1/db?sslmode=verify-full', 'full'],
      ['postgres://u@127.0.0.1/db?sslrootcert=system', 'full'],
    ] as const
    for (const [url, checks] of modes) {
      const { tls } = await read(url)
      t.equal(tls?.checks ?? null, checks, url)
    }
  },
)

t.test('a root certificate is read, and makes `require` check it', async (t) => {
  const path = join(await temporaryFolder(t), 'root.pem')
  await writeFile(path, 'PEM')
  const url = `postgres://u@db.example/db?sslmode=require&sslrootcert=${encodeURIComponent(path)}`
  t.same((await read(url)).tls, { checks: 'ca', roots: 'PEM' })
  await t.rejects(read('postgres://u@h/db?sslrootcert=/no/such'), { message: /cannot be read \(ENOENT\)/ })
  t.match(problemOfStoreUrl('postgres://u@h/db?sslrootcert=root.pem'), /absolute path/)
})

t.test('the parts of an address, and the address as messages show it', async (t) => {
  const parts = { host: '/run/pg', port: 5432, user: 'a b', database: 'x/y', passwordFile: null }
  for (const url of [
    'postgresql:///x%2Fy?host=/run/pg&user=a%20b',
    'postgres://a%20b@%2Frun%2Fpg/x%2Fy',
    'postgres:///?host=/run/pg&user=a+b&dbname=x/y&port=5432',
  ])
    t.match(await read(url), parts)
  t.equal(
    storeName(await read('postgres://a%20b@%2Frun%2Fpg/x%2Fy')),
    'postgres://a%20b@%2Frun%2Fpg:5432/x%2Fy',
  )
  t.equal(storeName(await read('postgres://u@[::1]:99/db')), 'postgres://u@[::1]:99/db')
})

t.test('what is wrong with an address is said without showing it', async (t) => {
  const wrong = [
    ['postgres://u:geheim@h/db', /password/],
    ['postgres://u@h/db?password=geheim', /password/],
    ['postgres://h/db', /of the form/],
    ['postgres://u@h/', /of the form/],
    ['http://u@h/db', /of the form/],
    ['postgres://u@h/%', /of the form/],
    ['postgres://u@h1,h2/db', /one host/],
    ['postgres://u@h/db?sslmode=prefer', /sslmode/],
    ['postgres://u@h/db?port=0', /port/],
    ['postgres://u@h/db?options=geheim', /parameter/],
    ['postgres://u@h/db?host=a&host=b', /parameter/],
    ['postgres://u@h/db#geheim', /#/],
  ] as const
  for (const [url, problem] of wrong) {
    t.match(problemOfStoreUrl(url), problem, url)
    t.notMatch(problemOfStoreUrl(url), /geheim/)
  }
  t.equal(problemOfStoreUrl('postgres://u@h/db'), null)
})
