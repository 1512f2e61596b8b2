import { chmodSync, existsSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { prepareDataFolder, restrictPermissions } from '../../src/config/data-folder.ts'

t.test('a missing folder is made, for its owner alone', async (t) => {
  const folder = t.testdir()
  const data = join(folder, 'a', 'b', 'data')
  await prepareDataFolder(data)
  t.equal(statSync(data).mode & 0o777, 0o700)
  await prepareDataFolder(data)
  chmodSync(data, 0o750)
  await prepareDataFolder(data)
  t.equal(statSync(data).mode & 0o777, 0o750, 'what its owner chose is kept')
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
