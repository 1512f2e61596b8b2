// Runs several test files in one process: node scripts/test-files.mjs FILE...
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const files = process.argv.slice(2)
// tap names its temporary folders after the program and its arguments.
process.argv = [process.execPath, resolve(files[0])]
// One module imports them all, so that every file has registered its tests before the first test ends.
const imports = files.map((file) => `import ${JSON.stringify(pathToFileURL(resolve(file)).href)}\n`)
await import(`data:text/javascript,${encodeURIComponent(imports.join(''))}`)
