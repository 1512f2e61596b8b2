/** `settee backup`, on a running and on a stopped server. */
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { wrongSums } from '../maintenance/backup/server.ts'
import { builtSettee, ROOT, start } from './child.ts'

t.before(async () => {
  const { code, stdout, stderr } = await start(t, process.execPath, ['scripts/build.mjs'], { cwd: ROOT })
    .ended
  if (code !== 0) throw new Error(`${stdout}${stderr}`)
})

async function run(t: Test, dataDir: string, args: string[]) {
  const { code, stdout, stderr } = await builtSettee(t, ['backup', ...args], {
    env: { SETTEE_DATA: dataDir },
  }).ended
  return { code, stdout, stderr }
}

const ALL = /^(\/\S+): 2 databases, [\d.]+ MB \([\d.]+ MB new\), verified\.\n$/

/** The folder that a line names. */
const folderIn = (stdout: string) => stdout.slice(0, stdout.indexOf(': '))

t.test('whether the server runs or not', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  await server.request('PUT', '/notes')
  await server.request('PUT', '/notes/a', { body: {} })
  const other = join(await temporaryFolder(t), 'usb')

  const check = async (inWords: string) => {
    const own = await run(t, dataDir, [])
    t.match(own, { code: 0, stdout: ALL, stderr: '' }, inWords)
    t.ok(folderIn(own.stdout).startsWith(join(dataDir, 'backups')))
    t.strictSame(await wrongSums(folderIn(own.stdout)), [])
    const some = await run(t, dataDir, ['--to', other, '--db', 'notes', '--json'])
    t.match(some, { code: 0, stderr: '' }, inWords)
    const done = JSON.parse(some.stdout)
    t.match(done, { verified: true, is_whole: false, databases: 1, left_out: [], path: join(other, done.id) })
    t.strictSame(await wrongSums(done.path), [])
    const missing = await run(t, dataDir, ['--db', 'none'])
    t.strictSame(missing, { code: 1, stdout: '', stderr: 'settee: There is no database none.\n' }, inWords)
    for (const [to, why] of [
      [join(other, 'a', 'b'), /cannot be used: its parent folder does not exist\.\n$/],
      [join(dataDir, 'server.sqlite', 'a'), /cannot be used: a part of its path is a file\.\n$/],
      [
        join(dataDir, 'databases'),
        /is used by settee in the data folder; backups need a folder of their own\.\n$/,
      ],
      [join(dataDir, 'tmp', 'a'), /is used by settee in the data folder/],
      [dataDir, /is used by settee in the data folder/],
    ] as const) {
      t.match(await run(t, dataDir, ['--to', to]), { code: 1, stdout: '', stderr: why }, `${inWords}: ${to}`)
    }
  }
  await check('it runs')
  t.equal((await server.request('GET', '/_settee/backups')).json.backups.length, 1)
  await server.close()
  await check('it is stopped')
  t.equal((await readdir(join(dataDir, 'backups'))).length, 2)
  t.strictSame(
    (await readdir(join(dataDir, 'databases'))).filter((name) => !name.endsWith('.sqlite')),
    [],
  )
})

t.test('mistakes', async (t) => {
  const dataDir = join(await temporaryFolder(t), 'data')
  await mkdir(dataDir)
  t.match(await run(t, dataDir, ['notes']), { code: 1, stderr: /Unexpected argument "notes"/ })
  t.match(await run(t, dataDir, ['--port', '1']), { code: 1, stderr: /settee backup has no option --port/ })
  t.match(await run(t, dataDir, ['--to', '']), { code: 1, stderr: /--to needs a value/ })
  await rm(dataDir, { recursive: true })
  t.match(await run(t, dataDir, []), { code: 1, stderr: /data folder .* does not exist/ })
})
