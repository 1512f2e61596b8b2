import { once } from 'node:events'
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { ROOT, start } from '../../cli/child.ts'

/** A small project with our build script and settings. */
async function project(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-build-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  for (const name of ['scripts', 'package.json', 'tsconfig.json', 'tsconfig.build.json']) {
    cpSync(join(ROOT, name), join(folder, name), { recursive: true })
  }
  for (const name of [
    'package.json',
    'precompress.ts',
    'start-script.ts',
    'tsconfig.json',
    'vite.config.ts',
  ]) {
    cpSync(join(ROOT, 'console', name), join(folder, 'console', name))
  }
  mkdirSync(join(folder, 'console', 'src'))
  writeFileSync(
    join(folder, 'console', 'index.html'),
    '<script type="module" src="./src/main.tsx"></script>\n',
  )
  writeFileSync(join(folder, 'console', 'src', 'main.tsx'), "document.title = 'built'\n")
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  mkdirSync(join(folder, 'src', 'cli'), { recursive: true })
  writeFileSync(join(folder, 'src', 'cli', 'word.ts'), "export const word: string = 'serve'\n")
  const main = "#!/usr/bin/env node\nimport { word } from './word.ts'\nconsole.log(word)\n"
  writeFileSync(join(folder, 'src', 'cli', 'main.ts'), main)
  return folder
}
const build = (t: Test, cwd: string, ...args: string[]) =>
  start(t, process.execPath, ['scripts/build.mjs', ...args], { cwd }).ended
const stampOf = (folder: string): number => statSync(join(folder, 'dist', '.stamp')).mtimeMs

t.test('dist is built once, and again when an input has changed', async (t) => {
  const folder = await project(t)
  const entry = join(folder, 'dist', 'cli', 'main.js')
  t.match(await build(t, folder), { code: 0, stdout: '', stderr: /^settee: building dist\/, [^\n]*\n$/ })
  t.ok(statSync(entry).mode & 0o100, 'the entry point may be executed')
  t.ok(existsSync(join(folder, 'dist', 'console', 'index.html')), 'the console is built as well')
  t.match(await start(t, entry, [], { cwd: folder }).ended, { code: 0, stdout: 'serve\n' })
  const first = stampOf(folder)
  t.strictSame(await build(t, folder), { code: 0, stdout: '', stderr: '' })
  t.equal(stampOf(folder), first, 'nothing to do')
  writeFileSync(join(folder, 'src', 'extra.txt'), 'a table\n')
  utimesSync(join(folder, 'src', 'extra.txt'), 1, 1) // an old file counts as well
  await build(t, folder)
  t.ok(existsSync(join(folder, 'dist', 'extra.txt')))
  rmSync(join(folder, 'src', 'extra.txt'))
  await build(t, folder)
  t.notOk(existsSync(join(folder, 'dist', 'extra.txt')), 'output of a removed file goes')
  const last = stampOf(folder)
  await build(t, folder, '--force')
  t.not(stampOf(folder), last)
})

t.test('modules are bundled, and types that nobody can import are left out', async (t) => {
  const folder = await project(t)
  writeFileSync(
    join(folder, 'src', 'index.ts'),
    "import { word } from './cli/word.ts'\nexport const face: typeof word = word\n",
  )
  await build(t, folder)
  const files = globSync('**/*.{js,d.ts}', { cwd: join(folder, 'dist'), exclude: ['console'] })
  t.strictSame(files.map((file) => dirname(file)).sort(), ['.', '.', 'chunks', 'cli', 'cli'])
  t.match(await start(t, process.execPath, [join(folder, 'dist', 'index.js')], { cwd: folder }).ended, {
    code: 0,
    stderr: '',
  })
})

t.test('a failed build leaves dist unchanged', async (t) => {
  const folder = await project(t)
  await build(t, folder)
  const before = readFileSync(join(folder, 'dist', '.stamp'), 'utf8')
  writeFileSync(join(folder, 'src', 'wrong.ts'), "export const wrong: number = 'text'\n")
  t.match(await build(t, folder), { code: 1, stdout: /wrong\.ts/, stderr: /settee: the build failed\.\n$/ })
  t.equal(readFileSync(join(folder, 'dist', '.stamp'), 'utf8'), before)
})

t.test('npm start reports a busy port before it builds', async (t) => {
  const folder = await project(t)
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const starting = (args: string[], env: NodeJS.ProcessEnv = {}) =>
    start(t, process.execPath, ['scripts/start.mjs', ...args], { cwd: folder, env }).ended
  const ini = join(folder, 'local.ini')
  writeFileSync(ini, `[chttpd]\nport = ${port}\n`)
  const busy = {
    code: 1,
    stderr: new RegExp(`^settee: Port ${port} on 127\\.0\\.0\\.1 is already in use; .*--port 5985\n$`),
  }
  t.match(await starting(['--port', `${port}`]), busy)
  t.match(await starting([`--port=${port}`]), busy)
  t.match(await starting([], { SETTEE_PORT: `${port}` }), busy)
  t.match(await starting(['--data', folder]), busy)
  t.notOk(existsSync(join(folder, 'dist')), 'nothing was built')
  const free = await starting(['--data', folder, '--port', '0'])
  t.match(free, { code: 0, stdout: 'serve\n', stderr: /^settee: building/ })
})

t.test('without a compiler, an existing dist is used', async (t) => {
  const folder = await project(t)
  await build(t, folder)
  const before = stampOf(folder)
  rmSync(join(folder, 'node_modules'))
  writeFileSync(join(folder, 'src', 'extra.ts'), 'export const extra = 1\n')
  t.match(await build(t, folder), { code: 0, stderr: '' })
  t.equal(stampOf(folder), before)
  rmSync(join(folder, 'dist'), { recursive: true })
  t.match(await build(t, folder), {
    code: 1,
    stderr: 'settee: dist/ is missing and cannot be built here; run npm ci first.\n',
  })
})
