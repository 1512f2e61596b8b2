import { chmodSync, existsSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { prepareDataFolder } from '../../src/config/data-folder.ts'

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
