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
/** The types of the package's `exports`. */
const DECLARATIONS = ['index.d.ts', join('core', 'address.d.ts')]

function filesIn(folder) {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile())
    .map((file) => join(file.parentPath, file.name))
}

const sourceFiles = () => filesIn('src')

/** The inputs of the console's page. */
function consoleFiles() {
  const settings = [
    'index.html',
    'package.json',
    'precompress.ts',
    'start-script.ts',
    'tsconfig.json',
    'vite.config.ts',
  ]
  return [...filesIn(join('console', 'src')), ...settings.map((name) => join(root, 'console', name))]
}

/** One line per input: path, size, time. */
function inputs() {
  const settings = [
    'package.json',
    'tsconfig.json',
    'tsconfig.build.json',
    join('scripts', 'bundle.mjs'),
  ].map((name) => join(root, name))
  return [...sourceFiles(), ...consoleFiles(), ...settings]
    .sort((a, b) => (a < b ? -1 : 1))
    .map((path) => {
      const { size, mtimeMs } = statSync(path)
      return `${path.slice(root.length + 1)} ${size} ${mtimeMs}\n`
    })
    .join('')
}

/** @returns the path of a package's program, or null if the package is not installed */
function programOf(name, program) {
  try {
    const manifest = createRequire(join(root, 'package.json')).resolve(`${name}/package.json`)
    return join(dirname(manifest), JSON.parse(readFileSync(manifest, 'utf8')).bin[program])
  } catch {
    return null
  }
}

function succeeds(program, args) {
  return spawnSync(process.execPath, [program, ...args], { cwd: root, stdio: 'inherit' }).status === 0
}

function fail(message) {
  console.error(`settee: ${message}`)
  process.exit(1)
}

/** Removes the declarations that those of the package's `exports` do not need: nearly all. */
function removeUnpublished(folder) {
  const needed = new Set(DECLARATIONS.map((name) => join(folder, name)).filter(existsSync))
  for (const file of needed) {
    for (const [, path] of readFileSync(file, 'utf8').matchAll(
      /\b(?:from|import)\b\s*\(?['"](\.[^'"]+)\.ts['"]/g,
    )) {
      needed.add(join(dirname(file), `${path}.d.ts`))
    }
  }
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name)
    if (entry.isFile() && !needed.has(file)) rmSync(file)
  }
}

/** Builds into a separate folder, which replaces dist/ only when it is complete. */
async function build({ compiler, pageBundler }, wanted) {
  console.error(
    'settee: building dist/, which takes a while, and is needed once and after each change of the source ...',
  )
  const partial = join(root, `.dist-${process.pid}`)
  rmSync(partial, { recursive: true, force: true })
  try {
    // The declarations, and errors in types.
    if (!succeeds(compiler, ['-p', 'tsconfig.build.json', '--outDir', partial])) return false
    removeUnpublished(partial)
    const { bundle } = await import('./bundle.mjs')
    await bundle(join(root, 'src'), partial)
    const page = ['--outDir', join(partial, 'console'), '--emptyOutDir', '--logLevel', 'warn']
    if (!succeeds(pageBundler, ['build', 'console', ...page])) return false
    // Tables and licences, which the bundle leaves out.
    for (const file of sourceFiles().filter((name) => !name.endsWith('.ts'))) {
      copyFileSync(file, join(partial, file.slice(join(root, 'src').length)))
    }
    chmodSync(join(partial, entry), 0o755)
    writeFileSync(join(partial, '.stamp'), wanted)
    rmSync(dist, { recursive: true, force: true })
    renameSync(partial, dist)
    return true
  } catch (error) {
    console.error(error)
    return false
  } finally {
    rmSync(partial, { recursive: true, force: true })
  }
}

const built = existsSync(join(dist, entry))
const compiler = programOf('typescript', 'tsc')
const pageBundler = programOf('vite', 'vite')
if (!existsSync(join(root, 'src')) || compiler === null || pageBundler === null) {
  if (!built) fail('dist/ is missing and cannot be built here; run npm ci first.')
} else {
  const wanted = inputs()
  const fresh = built && existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted
  if ((!fresh || process.argv.includes('--force')) && !(await build({ compiler, pageBundler }, wanted)))
    fail('the build failed.')
}
