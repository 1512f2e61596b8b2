import { chmodSync, existsSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { mkdir, open } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { prepareDataFolder, restrictPermissions } from '../../src/config/data-folder.ts'
import { StartError, startFailureLine } from '../../src/config/start-error.ts'

const listenError = (port: number, host: string): Promise<unknown> =>
  new Promise((resolve) => createServer().on('error', resolve).listen(port, host))

t.test('each error is one line for the operator', async (t) => {
  const busy = createServer()
  await new Promise<void>((resolve) => busy.listen(0, '127.0.0.1', resolve))
  t.teardown(() => busy.close())
  const { port } = busy.address() as AddressInfo
  t.equal(
    startFailureLine(await listenError(port, '127.0.0.1')),
    `Port ${port} on 127.0.0.1 is already in use; stop the program that uses it, or choose another port with --port.`,
  )
  t.equal(
    startFailureLine(await listenError(0, '192.0.2.1')),
    'This machine does not have the address 192.0.2.1; choose one of its own with --bind.',
  )
  const folder = t.testdir({ file: '' })
  const notFolder = await mkdir(join(folder, 'file', 'data'), { recursive: true }).catch(
    (error: unknown) => error,
  )
  t.equal(
    startFailureLine(notFolder),
    `${join(folder, 'file', 'data')} cannot be a folder: a part of this path is a file.`,
  )
  const missing = await open(join(folder, 'missing')).catch((error: unknown) => error)
  t.match(startFailureLine(missing), /^settee cannot start: ENOENT/)
  t.equal(startFailureLine(new StartError('two\nlines')), 'two lines')
  t.equal(startFailureLine(new TypeError('x is not a function')), 'settee cannot start: x is not a function')
  t.equal(startFailureLine('thrown text'), 'settee cannot start: thrown text')
})

t.test('errors of the system that a test cannot provoke as root', (t) => {
  const error = (fields: object) => Object.assign(new Error('system error'), fields)
  const table: [fields: object, line: string][] = [
    [
      { code: 'EACCES', syscall: 'listen', address: '::', port: 80 },
      'Port 80 on :: is not allowed for this account; choose a port above 1023 with --port.',
    ],
    [
      { code: 'ENOTFOUND', syscall: 'getaddrinfo' },
      'This machine does not know the address given with --bind; choose one of its own.',
    ],
    [{ code: 'EMFILE', syscall: 'listen' }, 'settee cannot listen: system error'],
    [
      { code: 'EACCES', syscall: 'open', path: '/data/x' },
      '/data/x cannot be read or written by this account (EACCES); change its owner or its mode.',
    ],
    [{ code: 'EROFS', syscall: 'open', path: '/data/x' }, '/data/x is on a read-only file system.'],
    [{ code: 'ENOSPC', syscall: 'open', path: '/data/x' }, '/data/x cannot be written: the disk is full.'],
    [{ code: 'ENOSPC', syscall: 'write' }, 'The disk is full.'],
  ]
  for (const [fields, line] of table) t.equal(startFailureLine(error(fields)), line)
  t.end()
})

t.test('a missing folder is made, for its owner alone', async (t) => {
  const folder = t.testdir()
  const data = join(folder, 'a', 'b', 'data')
  await prepareDataFolder(data)
  t.equal(statSync(data).mode & 0o777, 0o700)
  await prepareDataFolder(data)
  chmodSync(data, 0o750)
  await prepareDataFolder(data)
  t.equal(statSync(data).mode & 0o777, 0o750, 'the permissions of an existing folder are kept')
  symlinkSync(data, join(folder, 'link'))
  await prepareDataFolder(join(folder, 'link'))
})

t.test('a folder that cannot be is one clear line', async (t) => {
  const folder = t.testdir({ file: '' })
  const refused = (path: string, message: string | RegExp) =>
    t.rejects(prepareDataFolder(path), { name: 'StartError', message })
  await refused(join(folder, 'file'), `The data folder ${join(folder, 'file')} is a file.`)
  await refused(join(folder, 'file', 'x'), /cannot be made: a part of its path is a file\.$/)
  await refused('/proc/settee', /^The data folder \/proc\/settee cannot be used \(ENOENT\)\.$/)
  await refused('/proc/settee/data', /^The data folder \/proc\/settee\/data /)
  symlinkSync(join(folder, 'nowhere'), join(folder, 'dangling'))
  await refused(join(folder, 'dangling'), /cannot be used \(ENOENT\)/)
  t.notOk(existsSync(join(folder, 'nowhere')))
})

t.test(
  'another account’s folder',
  { skip: process.getuid?.() === 0 ? 'root may write everywhere' : false },
  async (t) => {
    const folder = t.testdir({ data: {} })
    chmodSync(join(folder, 'data'), 0o500)
    await t.rejects(prepareDataFolder(join(folder, 'data')), { message: /cannot be written by this account/ })
  },
)

t.test('what an older version left open is closed to others, and nothing else is touched', async (t) => {
  const data = t.testdir({ elsewhere: '' })
  const modeOf = (name: string) => statSync(join(data, name)).mode & 0o777
  const own = [
    'server.sqlite',
    'server.sqlite-wal',
    'local.ini',
    'lock',
    'databases/a.sqlite',
    'databases/a.sqlite-wal',
  ]
  for (const folder of ['databases', 'backups', 'certificates']) {
    mkdirSync(join(data, folder))
    chmodSync(join(data, folder), 0o755)
  }
  for (const file of [...own, 'cert.pem']) writeFileSync(join(data, file), '', { mode: 0o644 })
  chmodSync(join(data, 'elsewhere'), 0o644)
  symlinkSync(join(data, 'elsewhere'), join(data, 'ballast'))
  await restrictPermissions(data)
  for (const file of own) t.equal(modeOf(file), 0o600, file)
  for (const folder of ['databases', 'backups']) t.equal(modeOf(folder), 0o700, folder)
  t.strictSame([modeOf('certificates'), modeOf('cert.pem'), modeOf('elsewhere')], [0o755, 0o644, 0o644])
  await restrictPermissions(t.testdir({ empty: {} }))
})
