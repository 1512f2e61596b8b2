/** The npm package, in an empty folder. */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, realpath, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { cleanNpmEnv, freePort, ROOT, start, untilUp, WITHOUT_LOADERS } from '../../cli/child.ts'
import { copyContext } from './dockerfile.ts'

t.setTimeout(600_000)

function run(t: Test, cwd: string, command: string, ...args: string[]): string {
  const [env, ...unset] = WITHOUT_LOADERS
  const options = { cwd, env: cleanNpmEnv(), encoding: 'utf8' } as const
  const { status, stdout, stderr } = spawnSync(env, [...unset, command, ...args], options)
  t.equal(status, 0, `${command} ${args.join(' ')}`, { stdout, stderr })
  return stdout
}

/** @returns the files of the package, and its own name */
function packed(listed: string) {
  const [{ files = [], filename = '' } = {}] = JSON.parse(listed) as {
    filename: string
    files: { path: string }[]
  }[]
  return { paths: files.map(({ path }) => path), filename }
}

t.test('npm ci compiles nothing, so it needs no Python', (t) => {
  // npm ci reads `gypfile` from the lock, but npm never writes it there: npm/cli#3341. After an `npm install` that has
  // rewritten the lock, add `"gypfile": false` to the entries that are named here.
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
  const isPrebuilt = (path: string) =>
    existsSync(join(ROOT, path, 'binding.gyp')) &&
    JSON.parse(readFileSync(join(ROOT, path, 'package.json'), 'utf8')).gypfile === false
  const prebuilt = Object.keys(packages).filter((path) => path !== '' && isPrebuilt(path))
  t.ok(prebuilt.includes('node_modules/better-sqlite3'))
  t.same(
    prebuilt.filter((path) => packages[path].gypfile !== false),
    [],
  )
  t.end()
})

t.test('npm pack builds the files that it packs', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'settee-clone-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  copyContext(ROOT, folder)
  await symlink(await realpath(join(ROOT, 'node_modules')), join(folder, 'node_modules'))
  const { paths } = packed(run(t, folder, 'npm', 'pack', '--json', '--dry-run'))
  t.ok(paths.includes('dist/cli/main.js'))
})

t.test('npx settee runs from the packed package', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'settee-package-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  // The test command has built the packed files.
  const listed = run(t, ROOT, 'npm', 'pack', '--json', '--ignore-scripts', '--pack-destination', folder)
  const { paths, filename } = packed(listed)
  t.ok(paths.includes('dist/cli/main.js') && paths.includes('dist/index.d.ts'))
  t.ok(paths.includes('LICENSE') && paths.includes('README.md'))
  t.ok(paths.includes('deploy/nginx.conf'), 'the package contains the files that its pages mention')
  for (const name of ['collation-table.bin', 'unicode-license.txt']) {
    t.ok(paths.includes(`dist/query/collation/${name}`), `and ${name}`)
  }
  t.same(
    paths.filter((path) => /^(?:src|test|bench|examples|data|scripts)\//.test(path)),
    [],
  )

  const home = join(folder, 'empty')
  await mkdir(home)
  run(t, home, 'npm', 'install', '--no-audit', '--no-fund', join(folder, filename))
  t.notOk(
    (await readdir(join(home, 'node_modules'))).includes('preact'),
    'packages of the example are not installed',
  )
  t.match(run(t, home, 'npx', 'settee', '--version'), /^settee \d+\.\d+\.\d+\n$/)

  const port = await freePort()
  const server = start(t, join(home, 'node_modules', '.bin', 'settee'), ['serve', '--port', String(port)], {
    cwd: home,
  })
  t.match(await untilUp(server, `http://127.0.0.1:${port}`), { status: 'ok' })
  const made = await fetch(`http://127.0.0.1:${port}/notes`, { method: 'PUT' })
  t.equal(made.status, 201)
  server.process.kill('SIGTERM')
  t.match(await server.ended, { code: 0 })

  const face = "const { createServer } = await import('settee'); console.log(typeof createServer)"
  t.equal(run(t, home, process.execPath, '--input-type=module', '--eval', face), 'function\n')
})
