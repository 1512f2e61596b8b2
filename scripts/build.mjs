// Builds dist/ when it is not up to date: node scripts/build.mjs [--force]
//
// dist/ is up to date if dist/.stamp lists the same inputs with the same sizes and times, so a file that was removed or
// replaced by an older one counts as a change. `npm start` runs this script every time; without changes it only reads
// file times. An installation without sources or without the compiler keeps its dist/.
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const dist = join(root, 'dist')
const stamp = join(dist, '.stamp')
const entry = join('cli', 'main.js')

function sourceFiles() {
  return readdirSync(join(root, 'src'), { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile())
    .map((file) => join(file.parentPath, file.name))
}

/** One line per input: path, size, time. */
function inputs() {
  const settings = ['package.json', 'tsconfig.json', 'tsconfig.build.json'].map((name) => join(root, name))
  return [...sourceFiles(), ...settings]
    .sort((a, b) => (a < b ? -1 : 1))
    .map((path) => {
      const { size, mtimeMs } = statSync(path)
      return `${path.slice(root.length + 1)} ${size} ${mtimeMs}\n`
    })
    .join('')
}

function compilerPath() {
  try {
    const manifest = createRequire(join(root, 'package.json')).resolve('typescript/package.json')
    return join(dirname(manifest), JSON.parse(readFileSync(manifest, 'utf8')).bin.tsc)
  } catch {
    return null
  }
}

function fail(message) {
  console.error(`settee: ${message}`)
  process.exit(1)
}

/** Builds into a separate folder, which replaces dist/ only when it is complete. */
function build(compiler, wanted) {
  const partial = join(root, `.dist-${process.pid}`)
  rmSync(partial, { recursive: true, force: true })
  try {
    const options = ['-p', 'tsconfig.build.json', '--outDir', partial]
    const { status } = spawnSync(process.execPath, [compiler, ...options], { cwd: root, stdio: 'inherit' })
    if (status !== 0) return false
    // Tables and licences, which the compiler leaves out.
    for (const file of sourceFiles().filter((name) => !name.endsWith('.ts'))) {
      copyFileSync(file, join(partial, file.slice(join(root, 'src').length)))
    }
    chmodSync(join(partial, entry), 0o755)
    writeFileSync(join(partial, '.stamp'), wanted)
    rmSync(dist, { recursive: true, force: true })
    renameSync(partial, dist)
    return true
  } finally {
    rmSync(partial, { recursive: true, force: true })
  }
}

const built = existsSync(join(dist, entry))
const compiler = compilerPath()
if (!existsSync(join(root, 'src')) || compiler === null) {
  if (!built) fail('dist/ is missing and cannot be built here; run npm ci first.')
} else {
  const wanted = inputs()
  const fresh = built && existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted
  if ((!fresh || process.argv.includes('--force')) && !build(compiler, wanted)) fail('the build failed.')
}
